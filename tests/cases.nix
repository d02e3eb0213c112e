# Contradictions that the modules have to refuse, and what they say then. Evaluated without the rest of NixOS, so that
# a case costs nothing. Evaluating this is the test.
{ lib, pkgs }:
let
  inherit (lib) mkOption types;

  # Options of NixOS: those that the modules read with their types, the others as they come.
  anything = mkOption {
    type = types.lazyAttrsOf types.anything;
    default = { };
  };
  nixos = {
    options = {
      assertions = mkOption {
        type = types.listOf types.raw;
        default = [ ];
      };
      boot = {
        kernel = anything;
        kernelModules = mkOption {
          type = types.listOf types.str;
          default = [ ];
        };
        kernelParams = mkOption {
          type = types.listOf types.str;
          default = [ ];
        };
      };
      environment = anything;
      networking = anything;
      powerManagement = anything;
      security.acme.certs = anything;
      services = {
        irqbalance.enable = mkOption { type = types.bool; };
        litestream = anything;
        postgresql = anything;
        udev = anything;
      };
      systemd = anything;
      users = anything;
    };
    config = {
      _module.args = { inherit pkgs; };
      linerate.packages = lib.genAttrs [ "api" "links" "files" "linerate" ] (_: pkgs.hello);
    };
  };

  twoCores = [
    [
      0
      2
    ]
    [
      1
      3
    ]
  ];

  card = driver: options: {
    linerate.tuning.nic.card = {
      inherit driver;
    }
    // options;
  };

  byAcme = {
    security.acme.certs."files.example" = {
      directory = "/var/lib/acme/files.example";
      group = "acme";
    };
    services.linerate.files = {
      enable = true;
      tls.acme = "files.example";
    };
  };

  evaluate =
    module:
    (lib.evalModules {
      modules = [
        nixos
        ../modules/services
        ../modules/tuning
        { linerate.tuning.enable = true; }
        module
      ];
    }).config;

  failures =
    module:
    map (assertion: assertion.message) (
      lib.filter (assertion: !assertion.assertion) (evaluate module).assertions
    );

  # What is said, or nothing where all is well.
  refused = {
    "nothing contradicts itself by default" = {
      module = { };
      says = null;
    };
    "a port below 1024 is fine" = {
      module.services.linerate.links.enable = true;
      says = null;
    };
    "a port below those that anybody may bind" = {
      module = {
        services.linerate.links = {
          enable = true;
          settings.listen = [ ":81" ];
        };
        boot.kernel.sysctl."net.ipv4.ip_unprivileged_port_start" = 82;
      };
      says = "a service of linerate binds port 81, which is below";
    };
    "a port that systemd binds is fine" = {
      module = {
        services.linerate.links = {
          enable = true;
          socketActivation = true;
        };
        boot.kernel.sysctl."net.ipv4.ip_unprivileged_port_start" = 1024;
      };
      says = null;
    };
    "bbr with fq is fine" = {
      module.linerate.tuning.wan = true;
      says = null;
    };
    "bbr without fq" = {
      module.linerate.tuning = {
        wan = true;
        kernel."net.core.default_qdisc" = "fq_codel";
      };
      says = "bbr paces by fq";
    };
    "interrupts on an isolated CPU" = {
      module = {
        boot.kernelParams = [ "isolcpus=managed_irq,domain,2-3" ];
        linerate.tuning.cpu.irqCpus = [
          1
          2
        ];
      };
      says = "isolcpus= keeps work off CPUs 2,";
    };
    "workers on isolated CPUs" = {
      module = {
        boot.kernelParams = [ "isolcpus=4-7" ];
        linerate.tuning.cpu.serviceCpus = lib.range 0 5;
      };
      says = "isolcpus= keeps work off CPUs 4-5,";
    };
    "isolated CPUs that nothing is placed on are fine" = {
      module = {
        boot.kernelParams = [ "isolcpus=4-7" ];
        linerate.tuning.cpu.serviceCpus = lib.range 0 3;
      };
      says = null;
    };
    "a CPU that the host does not have" = {
      module.linerate.tuning.cpu = {
        cores = twoCores;
        irqCpus = [ 4 ];
      };
      says = "CPUs 4, which no core of this host has";
    };
    "two queues on a core beside one without" = {
      module.linerate.tuning.cpu = {
        cores = twoCores;
        irqCpus = [
          0
          2
        ];
      };
      says = "irqCpus 0,2 are threads of one core";
    };
    "two queues on every core are fine" = {
      module.linerate.tuning.cpu = {
        cores = twoCores;
        irqCpus = lib.range 0 3;
      };
      says = null;
    };
    "a CPU in two cores" = {
      module.linerate.tuning.cpu.cores = [
        [ 0 ]
        [
          0
          1
        ]
      ];
      says = "in two of the cores";
    };
    "irqbalance beside placed queues" = {
      module = {
        services.irqbalance.enable = true;
        linerate.tuning.nic.ten.driver = "ixgbe";
      };
      says = "irqbalance would move";
    };
    "irqbalance with cards that are left to it is fine" = {
      module = {
        services.irqbalance.enable = true;
        linerate.tuning.nic.ten = {
          driver = "ixgbe";
          placement = null;
        };
      };
      says = null;
    };
    "a governor in a virtual machine" = {
      module.linerate.tuning.cpu = {
        virtual = true;
        governor = "performance";
      };
      says = "no frequency to govern";
    };
    "more queues than the card has" = {
      module = card "ixgbe" { queues = 64; };
      says = "ixgbe has queues up to 63, not 64";
    };
    "more queues than CPUs for them" = {
      module.linerate.tuning = {
        cpu.irqCpus = lib.range 0 3;
        nic.ten = {
          driver = "ixgbe";
          queues = 6;
        };
      };
      says = "6 queues share 4 irqCpus";
    };
    "a receive ring larger than the card's" = {
      module = card "ixgbe" { rxRing = 8192; };
      says = "receive rings up to 4096, not 8192";
    };
    "a send ring larger than the card's" = {
      module = card "ena" { txRing = 2048; };
      says = "send rings up to 1024, not 2048";
    };
    "packets larger than the card's" = {
      module = card "ixgbe" { mtu = 16000; };
      says = "packets up to 9710, not 16000";
    };
    "a key without a certificate" = {
      module.services.linerate.files = {
        enable = true;
        tls.key = "/key.pem";
      };
      says = "a certificate and its key go together";
    };
    "a certificate from files and from ACME" = {
      module = {
        imports = [ byAcme ];
        services.linerate.files.tls = {
          certificate = "/chain.pem";
          key = "/key.pem";
        };
      };
      says = "from files or from ACME, not from both";
    };
    "a certificate that ACME does not have" = {
      module.services.linerate.files = {
        enable = true;
        tls.acme = "files.example";
      };
      says = "security.acme.certs has no files.example";
    };
    "a local database and a secret that names another" = {
      module.services.linerate.api = {
        enable = true;
        database.createLocally = true;
        secrets.database-url = "/secret";
      };
      says = "the local database needs no secret";
    };
    "TLS without a certificate" = {
      module.services.linerate.files = {
        enable = true;
        settings.tls-listen = [ ":443" ];
      };
      says = "TLS needs a certificate";
    };
    "coalesced sends on ixgbe" = {
      module = card "ixgbe" { coalescing.TxCoalesceSec = "10us"; };
      says = "refuses TxCoalesceSec";
    };
  };

  judge =
    name:
    { module, says }:
    let
      said = failures module;
      fits =
        if says == null then said == [ ] else lib.length said == 1 && lib.hasInfix says (lib.head said);
    in
    lib.optional (!fits)
      "${name}: ${if said == [ ] then "nothing was said" else lib.concatStringsSep "; " said}";

  equal =
    name: got: expected:
    lib.optional (
      got != expected
    ) "${name}: ${builtins.toJSON got} instead of ${builtins.toJSON expected}";

  ranges = import ../modules/tuning/ranges.nix { inherit lib; };
  address = import ../modules/services/address.nix { inherit lib; };

  # The part of the appliance that NixOS before 26.11 has no options for.
  counted =
    (lib.evalModules {
      modules = [
        ../modules/appliance/update.nix
        {
          options = {
            boot = {
              kernelParams = mkOption { type = types.listOf types.str; };
              loader.systemd-boot = {
                bootCounting = anything;
                configurationLimit = mkOption { type = types.int; };
                editor = mkOption { type = types.bool; };
                enable = mkOption { default = true; };
              };
            };
            linerate.appliance.enable = mkOption { default = true; };
            system.autoUpgrade = anything;
            systemd.settings = anything;
          };
          config._module.args = { inherit pkgs; };
        }
      ];
    }).config;

  wrong =
    lib.concatLists (lib.mapAttrsToList judge refused)
    ++ equal "ranges are written" (ranges.show [
      3
      0
      1
      2
      8
    ]) "0-3,8"
    ++ equal "ranges are read" (ranges.parse "2-4") [
      2
      3
      4
    ]
    ++
      equal "ports of addresses"
        (address.ports [
          ":80"
          "[::1]:8080"
          "unix:/run/x"
          "systemd:http"
          "127.0.0.1:80"
        ])
        [
          80
          8080
        ]
    ++
      equal "an address for this machine"
        (map address.url [
          ":80"
          "0.0.0.0:81"
          "[::]:82"
          "[::1]:83"
        ])
        [
          "http://127.0.0.1:80"
          "http://127.0.0.1:81"
          "http://127.0.0.1:82"
          "http://[::1]:83"
        ]
    ++ equal "null leaves the kernel's own" (
      (evaluate { linerate.tuning.kernel."net.core.somaxconn" = null; }).boot.kernel.sysctl
        ? "net.core.somaxconn"
    ) false
    ++
      equal "a certificate of ACME is read where it is renewed"
        (evaluate byAcme).linerate.services.files.settings.cert
        "/var/lib/acme/files.example/fullchain.pem"
    ++
      equal "a secret is a credential by the name of its variable"
        (evaluate {
          services.linerate.files = {
            enable = true;
            secrets.access-log = "/secret";
          };
        }).systemd.services.linerate-files.serviceConfig.LoadCredential
        [ "LINERATE_FILES_ACCESS_LOG:/secret" ]
    ++
      equal "a secret is told by its credential alone"
        (evaluate {
          services.linerate.api = {
            enable = true;
            secrets.database-url = "/secret";
          };
        }).linerate.services.api.settings.database-url or null
        null
    ++
      equal "boots are counted where NixOS can"
        {
          inherit (counted.boot.loader.systemd-boot) bootCounting;
          inherit (counted.systemd.settings.Manager) RuntimeWatchdogSec;
        }
        {
          bootCounting = {
            enable = true;
            tries = 2;
          };
          RuntimeWatchdogSec = "30s";
        };
in
if wrong == [ ] then
  pkgs.runCommand "linerate-nix-cases" { } "touch $out"
else
  throw (lib.concatStringsSep "\n" wrong)
