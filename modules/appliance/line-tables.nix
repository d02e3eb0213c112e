# Which line of the sources each address of our programs is of: aside of them, where `linerate profile` looks for it.
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
    # Of what is on the box; what somebody else has built may have none.
    environment.systemPackages = lib.concatMap (package: lib.optional (package ? debug) package.debug) (
      lib.attrValues (
        lib.intersectAttrs ({ linerate = { }; } // config.linerate.services) config.linerate.packages
      )
    );
  };
}
