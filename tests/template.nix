# What `nix flake init --template` creates is a flake that evaluates, and whose installer boots from a USB stick, on a
# machine whose own disks need no USB. Evaluating this is the test.
{
  linerate,
  nixpkgs,
  pkgs,
}:
let
  inherit (nixpkgs) lib;
  template = (import ../templates/host/flake.nix).outputs { inherit linerate nixpkgs; };
  evaluated = map (made: builtins.unsafeDiscardStringContext made.drvPath) (
    [ template.nixosConfigurations.box.config.system.build.toplevel ]
    ++ builtins.attrValues template.packages.x86_64-linux
  );
  inherit (template.packages.x86_64-linux.installer.config.boot) initrd;
  missing = lib.subtractLists initrd.availableKernelModules [
    "sd_mod"
    "uas"
    "usb_storage"
    "xhci_pci"
  ];
in
assert missing == [ ] || throw "the installer does not find its own stick: ${toString missing}";
pkgs.runCommand "linerate-nix-template" { inherit evaluated; } "touch $out"
