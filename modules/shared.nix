# What the modules tell each other. Each can be imported without the others.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  ports = mkOption {
    type = types.listOf types.port;
    default = [ ];
    description = "Ports on which visitors are answered.";
  };

  # Below 1024 a port is for who may bind any (ip(7)), unless the kernel is told to begin elsewhere.
  start = "net.ipv4.ip_unprivileged_port_start";
  low = lib.filter (port: port < 1024) (
    lib.concatMap (service: service.boundPorts) (lib.attrValues config.linerate.services)
  );
  lowest = lib.foldl' lib.min 1024 low;
in
{
  imports = [ ./profile.nix ];

  options.linerate = {
    cpu = mkOption {
      type = types.enum [
        "generic"
        "icelake-server"
        "alderlake"
      ];
      default = "generic";
      description = ''
        The CPU that the programs are compiled for. `generic` is x86-64-v3, which every server since Haswell
        and Zen is; a program for another CPU ends with an illegal instruction where the CPU is older.
      '';
    };

    packages = mkOption {
      type = types.lazyAttrsOf types.package;
      description = "The programs that services run unless their own `package` says otherwise.";
    };

    services = mkOption {
      internal = true;
      default = { };
      description = "The services of this host: what firewall and health check have to know of them.";
      type = types.attrsOf (
        types.submodule {
          options = {
            tcpPorts = ports;
            udpPorts = ports;
            boundPorts = mkOption {
              type = types.listOf types.port;
              default = [ ];
              description = "Ports that the service binds itself, where others are systemd's to bind.";
            };
            settings = mkOption {
              type = types.attrs;
              description = "What the service's file of settings says.";
            };
            readyUrl = mkOption {
              type = types.nullOr types.str;
              default = null;
              description = "Answers 200 when the service can answer.";
            };
          };
        }
      );
    };

    serviceCpus = mkOption {
      internal = true;
      type = types.nullOr types.str;
      default = null;
      description = "Where the services' workers run, in the form of `CPUAffinity=`; set by `linerate.tuning.cpu`.";
    };
  };

  # The capability instead would cost a service its user namespace, where it would not count, and by that more than it
  # gives. The price: from there on up anybody on this host may bind what is free. With `socketActivation` none is bound.
  config = mkIf (low != [ ]) {
    boot.kernel.sysctl.${start} = lib.mkDefault lowest;
    # Changed by hand, it shows when a service restarts, and not before.
    linerate.profile.kernel.sysctl.${start} = config.boot.kernel.sysctl.${start};

    assertions = [
      {
        assertion = lib.toInt (toString config.boot.kernel.sysctl.${start}) <= lowest;
        message = "boot.kernel.sysctl.\"${start}\": a service of linerate binds port ${toString lowest}, which is below.";
      }
    ];
  };
}
