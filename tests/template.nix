# What `nix flake init --template` creates is a flake that evaluates. Evaluating this is the test.
{
  linerate,
  nixpkgs,
  pkgs,
}:
let
  inherit ((import ../templates/host/flake.nix).outputs { inherit linerate nixpkgs; })
    nixosConfigurations
    ;
  evaluated = builtins.unsafeDiscardStringContext nixosConfigurations.box.config.system.build.toplevel.drvPath;
in
pkgs.runCommand "linerate-nix-template" { inherit evaluated; } "touch $out"
