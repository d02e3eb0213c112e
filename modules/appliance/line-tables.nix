# The source line of each address in our programs: in separate files, where `linerate profile` looks for them.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
in
{
  options.linerate.appliance.lineTables = mkOption {
    type = types.bool;
    default = true;
    description = ''
      Whether the box has the line tables of our programs, below `/run/current-system/sw/lib/debug`. With them a flame graph of
      `linerate profile` names lines, and functions that the compiler has put into others. Nothing else reads them. They take
      some 20 MiB of the disk for each program.
    '';
  };

  config = mkIf (cfg.enable && cfg.lineTables) {
    environment.pathsToLink = [ "/lib/debug" ];
    # For the programs on the box; those built elsewhere may have none.
    environment.systemPackages = lib.concatMap (package: lib.optional (package ? debug) package.debug) (
      lib.attrValues (
        lib.intersectAttrs ({ linerate = { }; } // config.linerate.services) config.linerate.packages
      )
    );
  };
}
