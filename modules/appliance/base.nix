# A system that nobody sits in front of: users as declared, bounded logs, state in one place.
{ config, lib, ... }:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config.linerate.appliance;
  hostKey = "ssh_host_ed25519_key";
in
{
  options.linerate.appliance.journalMiB = mkOption {
    type = types.ints.positive;
    default = 256;
    description = "What the journal may take on the disk, in MiB.";
  };

  config = mkIf cfg.enable {
    environment.systemPackages = [ config.linerate.packages.linerate ];

    # Users are what the configuration says.
    users.mutableUsers = mkDefault false;
    boot.tmp.useTmpfs = mkDefault true;
    networking.useNetworkd = mkDefault true;
    # A port of a card may be without a cable for good.
    systemd.network.wait-online.anyInterface = mkDefault true;

    # A kernel that panics boots again, and a service that fails does not keep the others from starting.
    boot.kernelParams = [ "panic=10" ];
    systemd.enableEmergencyMode = mkDefault false;

    # What has to outlive a boot is below /var/lib: state of services, and who this machine is to others.
    services.openssh.hostKeys = mkDefault [
      {
        path = "/var/lib/ssh/${hostKey}";
        type = "ed25519";
      }
    ];
    # Others look for it, or put it, where it is elsewhere, such as NixOS's scripts for EC2.
    systemd.tmpfiles.settings."10-linerate-ssh"."/var/lib/ssh".d.mode = "0755";
    environment.etc = lib.listToAttrs (
      map
        (name: {
          name = "ssh/${name}";
          value.source = "/var/lib/ssh/${name}";
        })
        [
          hostKey
          "${hostKey}.pub"
        ]
    );

    # A PostgreSQL that is the services' alone is reached by its socket alone. NixOS says localhost by a plain definition, so
    # a host that says something else does so by mkForce, and is heard.
    services.postgresql.settings.listen_addresses = mkIf (
      !config.services.postgresql.enableTCPIP
      && config.services.postgresql.ensureDatabases != [ ]
      &&
        lib.subtractLists [ "linerate-api" "linerate-links" ] config.services.postgresql.ensureDatabases
        == [ ]
    ) (lib.mkOverride 90 "");

    services.journald.extraConfig = ''
      SystemMaxUse=${toString cfg.journalMiB}M
      RuntimeMaxUse=64M
      MaxRetentionSec=1month
    '';
  };
}
