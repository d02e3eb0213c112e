# What `nix flake init --template` creates is a flake that evaluates. Evaluating this is the test.
{
  linerate,
  nixpkgs,
  pkgs,
}:
let
  template = (import ../templates/host/flake.nix).outputs { inherit linerate nixpkgs; };
  evaluated = map (made: builtins.unsafeDiscardStringContext made.drvPath) (
    [ template.nixosConfigurations.box.config.system.build.toplevel ]
    ++ builtins.attrValues template.packages.x86_64-linux
  );
in
pkgs.runCommand "linerate-nix-template" { inherit evaluated; } "touch $out"
