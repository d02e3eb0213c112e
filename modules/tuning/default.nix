# What a host is tuned for; the files beside this one derive the rest.
{ lib, ... }:
let
  inherit (lib) mkOption types;
in
{
  imports = [
    ../shared.nix
    ./cpu.nix
    ./kernel.nix
    ./nic.nix
    ./queues.nix
  ];

  options.linerate.tuning = {
    enable = lib.mkEnableOption "tuning of this host; you can also set each value separately";

    profile = mkOption {
      type = types.enum [
        "balanced"
        "bulk"
        "latency"
      ];
      default = "balanced";
      description = ''
        What the defaults optimise for. `bulk`: the most bytes per second for the least CPU time. `latency`: the fastest
        answers, at the cost of CPU time and power. `balanced`: many small answers under load.
      '';
    };

    wan = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether clients are far away. Then up to 64 MiB are in flight to one client, instead of the 16 MiB that suffice
        in a data centre, and connections use BBR, which unlike cubic does not treat a lost packet as congestion.
      '';
    };

    memoryMiB = mkOption {
      type = types.nullOr types.ints.positive;
      default = null;
      example = 32768;
      description = "The host's memory, in MiB. Null: settings that are a share of it keep the kernel's defaults.";
    };
  };
}
