# Every option of the modules, in CommonMark.
{
  lib,
  pkgs,
  modules,
}:
let
  evaluated = lib.nixosSystem {
    modules = [
      modules.default
      {
        nixpkgs.hostPlatform = pkgs.stdenv.hostPlatform.system;
        system.stateVersion = lib.trivial.release;
      }
    ];
  };
  documentation = pkgs.nixosOptionsDoc {
    options = {
      inherit (evaluated.options) linerate;
      services = { inherit (evaluated.options.services) linerate; };
    };
    # Where they are in this flake.
    transformOptions =
      option:
      option
      // {
        declarations = map (
          declaration: lib.removePrefix "${toString ../.}/" (toString declaration)
        ) option.declarations;
      };
    warningsAreErrors = true;
  };
in
pkgs.runCommand "linerate-options"
  {
    # For the manual, which is compared without building anything.
    passthru = {
      inherit (lib.trivial) release;
      options = documentation.optionsNix;
    };
  }
  ''
    mkdir $out
    cp ${documentation.optionsCommonMark} $out/options.md
    cp ${documentation.optionsJSON}/share/doc/nixos/options.json $out
  ''
