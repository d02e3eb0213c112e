# ssh accepts only keys, and can be limited to one interface.
{ config, lib, ... }:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config.linerate.appliance;

  # Ports of ssh that a service already uses.
  taken = lib.intersectLists config.services.openssh.ports (
    lib.concatMap (service: service.tcpPorts) (lib.attrValues config.linerate.services)
  );
in
{
  options.linerate.appliance.ssh = {
    port = mkOption {
      type = types.port;
      default = 22;
      description = "Where ssh listens.";
    };

    interface = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "eno1";
      description = "The only interface on which the firewall allows ssh, such as one for management. Null: all.";
    };

    keys = mkOption {
      type = types.listOf types.singleLineStr;
      default = [ ];
      description = "Public keys of those who may log in as root.";
    };
  };

  config = mkIf cfg.enable {
    services.openssh = {
      enable = mkDefault true;
      ports = mkDefault [ cfg.ssh.port ];
      openFirewall = mkDefault (cfg.ssh.interface == null);
      settings = {
        PasswordAuthentication = mkDefault false;
        KbdInteractiveAuthentication = mkDefault false;
        PermitRootLogin = mkDefault "prohibit-password";
        X11Forwarding = mkDefault false;
        # Each guess at a key costs the box a handshake, so few are allowed.
        MaxAuthTries = mkDefault 3;
        LoginGraceTime = mkDefault 20;
      };
    };
    networking.firewall.interfaces = mkIf (cfg.ssh.interface != null) {
      ${cfg.ssh.interface}.allowedTCPPorts = config.services.openssh.ports;
    };
    users.users.root.openssh.authorizedKeys.keys = cfg.ssh.keys;

    assertions = [
      {
        assertion = config.services.openssh.enable -> taken == [ ];
        message = "services.openssh.ports, or linerate.appliance.ssh.port: a service listens on ${toString taken} already.";
      }
    ];
  };
}
