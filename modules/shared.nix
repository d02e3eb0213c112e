# Values that modules pass to each other. Each module can be imported without the others.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  ports = mkOption {
    type = types.listOf types.port;
    default = [ ];
    description = "Ports on which visitors are answered.";
  };

  address = import ./services/address.nix { inherit lib; };
  taken = lib.concatMap (service: service.addresses) (lib.attrValues config.linerate.services);
  clashes = lib.concatLists (
    lib.imap1 (
      next: one:
      map (other: { inherit one other; }) (
        lib.filter (other: address.clash one.address other.address) (lib.drop next taken)
      )
    ) taken
  );
in
{
  imports = [ ./profile.nix ];

  options.linerate = {
    cpu = mkOption {
      type = types.enum [
        "generic"
        "icelake-server"
        "alderlake"
        "neoverse-n1"
        "neoverse-v1"
      ];
      default = "generic";
      description = ''
        The CPU that the programs are compiled for. `generic` is x86-64-v3, which every server since Haswell and Zen
        supports, or on aarch64 the instructions that all CPUs have. `neoverse-n1` is Graviton2, `neoverse-v1`
        Graviton3. On an older CPU than this one, a program ends with an illegal instruction.
      '';
    };

    guided = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the programs are built twice, the second time by a profile of what ran in the first
        (profile-guided optimization). Requests of the API then take 5 to 11 % less CPU time, and files over HTTP/3
        5 to 8 %; what else was measured is within 3 %. It takes one more build of the programs, for the generic CPU,
        and a minute in which that one is loaded. How often something runs differs a little each time, so that two
        machines that build the same system get programs that differ.
      '';
    };

    packages = mkOption {
      type = types.lazyAttrsOf types.package;
      description = "The programs that services run unless their own `package` says otherwise.";
    };

    services = mkOption {
      internal = true;
      visible = false;
      default = { };
      description = "The services of this host: what firewall and health check have to know of them.";
      type = types.attrsOf (
        types.submodule {
          options = {
            tcpPorts = ports;
            udpPorts = ports;
            addresses = mkOption {
              type = types.listOf (types.attrsOf types.str);
              default = [ ];
              description = "Every `address` that is listened on for it, each with the `option` that says so.";
            };
            databases = {
              urls = mkOption {
                type = types.listOf types.str;
                default = [ ];
                description = "URLs of databases that are not on this host.";
              };
              files = mkOption {
                type = types.listOf types.str;
                default = [ ];
                description = "Files on the host that hold such a URL, as a secret.";
              };
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

  config.assertions = [
    {
      assertion = config.linerate.packages ? links;
      message = "linerate.cpu: there are no programs for ${config.linerate.cpu} on ${pkgs.stdenv.hostPlatform.system}.";
    }
  ]
  ++ map (
    { one, other }:
    {
      assertion = false;
      message =
        if one == other then
          "${one.option}: ${one.address} is there twice."
        else
          "${one.option} and ${other.option}: ${one.address} and ${other.address} cannot both be listened on.";
    }
  ) clashes;
}
