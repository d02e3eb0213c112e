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
    enable = lib.mkEnableOption "tuning of this host, each value of which can be set by itself";

    profile = mkOption {
      type = types.enum [
        "balanced"
        "bulk"
        "latency"
      ];
      default = "balanced";
      description = ''
        What the defaults lean towards: `bulk` moves the most bytes a second for the least CPU time, `latency`
        answers soonest and lets CPU and power pay for it, `balanced` is for many small answers under load.
      '';
    };

    wan = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether clients are far away. Then 64 MiB are in flight to one client where a data centre needs 16 MiB, and
        connections are paced by BBR, which unlike cubic does not take a lost packet for congestion.
      '';
    };

    memoryMiB = mkOption {
      type = types.nullOr types.ints.positive;
      default = null;
      example = 32768;
      description = "Memory of the host, in MiB. What is a share of it stays the kernel's own where this is null.";
    };
  };
}
