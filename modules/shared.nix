# What the modules tell each other. Each can be imported without the others.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  ports = mkOption {
    type = types.listOf types.port;
    default = [ ];
    description = "Ports on which visitors are answered.";
  };
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
}
