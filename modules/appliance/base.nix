# A system that runs unattended: declared users, bounded logs, state in one place.
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
    description = "The most that the journal may take on disk, in MiB.";
  };

  config = mkIf cfg.enable {
    environment.systemPackages = [ config.linerate.packages.linerate ];

    # Users are exactly those in the configuration.
    users.mutableUsers = mkDefault false;
    boot.tmp.useTmpfs = mkDefault true;
    networking.useNetworkd = mkDefault true;
    # A card's port may never have a cable.
    systemd.network.wait-online.anyInterface = mkDefault true;

    # A kernel that panics reboots, and a service that fails doesn't keep the others from starting.
    boot.kernelParams = [ "panic=10" ];
    systemd.enableEmergencyMode = mkDefault false;

    # What has to survive a reboot is below /var/lib: state of services, and this machine's identity.
    services.openssh.hostKeys = mkDefault [
      {
        path = "/var/lib/ssh/${hostKey}";
        type = "ed25519";
      }
    ];
    # Other programs, such as NixOS's scripts for EC2, look for the host key in /etc/ssh or write it there. A host that
    # keeps its keys elsewhere gets no links, and one may have links of its own.
    systemd.tmpfiles.settings."10-linerate-ssh"."/var/lib/ssh".d.mode = "0755";
    environment.etc =
      mkIf
        (lib.any (
          key:
          lib.elem key.path [
            "/var/lib/ssh/${hostKey}"
            # NixOS's own path, which the link leads to the first.
            "/etc/ssh/${hostKey}"
          ]
        ) config.services.openssh.hostKeys)
        (
          lib.listToAttrs (
            map
              (name: {
                name = "ssh/${name}";
                value.source = mkDefault "/var/lib/ssh/${name}";
              })
              [
                hostKey
                "${hostKey}.pub"
              ]
          )
        );

    # A PostgreSQL that only serves the services is only reached by its socket. NixOS says localhost in a plain
    # definition, so a host that wants something else uses mkForce, which takes effect here too.
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
