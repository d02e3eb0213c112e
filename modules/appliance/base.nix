# A small closure, bounded logs, and state in one place.
{ config, lib, ... }:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config.linerate.appliance;
in
{
  options.linerate.appliance = {
    journalMiB = mkOption {
      type = types.ints.positive;
      default = 256;
      description = "What the journal may take on the disk, in MiB.";
    };

    metrics.enable = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether the machine's own figures are at <http://127.0.0.1:9100/metrics>; the services have theirs on
        their admin listeners.
      '';
    };
  };

  config = mkIf cfg.enable {
    environment.systemPackages = [ config.linerate.packages.linerate ];

    # Nobody reads manuals on the box.
    documentation.enable = mkDefault false;
    documentation.nixos.enable = mkDefault false;
    environment.defaultPackages = mkDefault [ ];
    environment.stub-ld.enable = mkDefault false;
    fonts.fontconfig.enable = mkDefault false;
    programs.command-not-found.enable = mkDefault false;
    # It brings perl.
    programs.less.lessopen = mkDefault null;
    boot.enableContainers = mkDefault false;
    services.udisks2.enable = mkDefault false;
    services.logrotate.enable = mkDefault false;
    xdg = {
      autostart.enable = mkDefault false;
      icons.enable = mkDefault false;
      mime.enable = mkDefault false;
      sounds.enable = mkDefault false;
    };
    # A host names the firmware that its cards need.
    hardware.enableRedistributableFirmware = mkDefault false;

    # Users are what the configuration says.
    users.mutableUsers = mkDefault false;
    boot.initrd.systemd.enable = mkDefault true;
    boot.tmp.cleanOnBoot = mkDefault true;
    networking.useNetworkd = mkDefault true;

    # Nobody sits in front of it: a kernel that panics boots again, and a service that fails does not keep the
    # others from starting.
    boot.kernelParams = [ "panic=10" ];
    systemd.enableEmergencyMode = mkDefault false;

    services.journald.extraConfig = ''
      SystemMaxUse=${toString cfg.journalMiB}M
      RuntimeMaxUse=64M
      MaxRetentionSec=1month
    '';

    services.prometheus.exporters.node = mkIf cfg.metrics.enable {
      enable = true;
      listenAddress = "127.0.0.1";
      enabledCollectors = [
        "interrupts"
        "softirqs"
      ];
    };
  };
}
