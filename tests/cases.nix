# Contradictions that the modules have to refuse, and their messages. Evaluated without the rest of NixOS, so that a
# case costs nothing. Evaluating this is the test.
{ lib, pkgs }:
let
  inherit (lib) mkOption types;

  # NixOS's options: typed if the modules read them, otherwise of any type.
  anything = mkOption {
    type = types.lazyAttrsOf types.anything;
    default = { };
  };
  strings = mkOption {
    type = types.listOf types.str;
    default = [ ];
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
      fileSystems = anything;
      networking = anything;
      powerManagement = anything;
      security.acme.certs = anything;
      services = {
        irqbalance.enable = mkOption { type = types.bool; };
        postgresql = anything;
        udev = anything;
      };
      systemd = {
        services = mkOption {
          type = types.lazyAttrsOf (
            types.submodule {
              freeformType = types.lazyAttrsOf types.anything;
              options = lib.genAttrs [ "after" "requires" "wantedBy" "wants" ] (_: strings) // {
                # A type that merges definitions, since several modules define it.
                serviceConfig = mkOption {
                  type = types.submodule {
                    freeformType = types.lazyAttrsOf types.anything;
                    options.LoadCredential = strings;
                  };
                  default = { };
                };
              };
            }
          );
          default = { };
        };
        sockets = anything;
        targets = anything;
        tmpfiles = anything;
        network = anything;
      };
      users = anything;
      warnings = mkOption { type = types.listOf types.str; };
    };
    config = {
      _module.args = {
        inherit pkgs;
        # As in NixOS, for the paths of the cases here.
        utils.escapeSystemdPath = path: lib.replaceStrings [ "/" ] [ "-" ] (lib.removePrefix "/" path);
      };
      services.linerate.links.settings.public-url = lib.mkDefault "http://localhost";
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

  linksByTls = {
    services.linerate.links = {
      enable = true;
      openFirewall = true;
      tls = {
        certificate = "/chain.pem";
        key = "/key.pem";
      };
      settings = {
        https-redirect = true;
        hsts = 31536000;
      };
    };
  };

  # Reachable from everywhere, also for operators.
  byMany = {
    security.acme.certs = lib.genAttrs [ "c.example" "d.example" ] (host: {
      directory = "/var/lib/acme/${host}";
      group = "acme";
    });
    services.linerate.links = {
      enable = true;
      tls = {
        certificate = "/a.pem";
        key = "/a.key";
        certificates."b.example" = {
          certificate = "/b.pem";
          key = "/b.key";
        };
        acme = [
          "c.example"
          "d.example"
        ];
        admin = true;
      };
    };
  };

  # A release newer than everything in modules/compatibility.nix.
  newer = lib.extend (
    _: previous: {
      trivial = previous.trivial // {
        release = "26.11";
      };
    }
  );

  # The socket whose name starts like this. A checksum of its address follows.
  socketOf =
    config: name:
    lib.head (
      lib.attrValues (lib.filterAttrs (each: _: lib.hasPrefix "${name}-" each) config.systemd.sockets)
    );

  evaluate = evaluateBy lib;
  evaluateBy =
    lib: module:
    (lib.evalModules {
      specialArgs = { inherit lib; };
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

  fleetOf = settings: {
    imports = [ ../modules/fleet ];
    options.services = lib.genAttrs [
      "bird"
      "bird2"
      "grafana"
      "keepalived"
      "prometheus"
    ] (_: anything);
    options.system = anything;
    options.linerate.appliance.update = anything;
    config = {
      services.linerate.links.enable = true;
      linerate.fleet = settings;
    };
  };
  # The assertions that a fleet fails, by the options at the start of their messages.
  fleet =
    settings: map (message: lib.head (lib.splitString ":" message)) (failures (fleetOf settings));
  announced = {
    enable = true;
    addresses = [ "192.0.2.10" ];
    interface = "eno1";
  };

  # The units of a box that checks its health and has user data, with new generations on trial or not.
  boxed = boxedBy true;
  boxedBy =
    trial:
    (evaluate {
      imports = [
        ../modules/appliance/health.nix
        ../modules/appliance/user-data.nix
      ];
      options = {
        linerate.appliance = lib.genAttrs [ "image" "update" ] (_: anything) // {
          enable = mkOption { default = true; };
        };
        systemd.package = mkOption { default = pkgs.systemd; };
      };
      config = {
        linerate.appliance = {
          image.enable = false;
          update = { inherit trial; };
          userData = true;
        };
        networking.hostName = "box";
        services.linerate.links.enable = true;
      };
    }).systemd.services;

  # Where the doctor of a box may connect to whose links have this address for operators.
  asked =
    socketActivation: admin:
    (evaluate {
      imports = [ ../modules/appliance/metrics.nix ];
      options = {
        linerate.appliance.enable = mkOption { default = true; };
        services.prometheus = anything;
        systemd.timers = anything;
      };
      config.services = {
        postgresql.enable = lib.mkDefault false;
        linerate.links = {
          enable = true;
          inherit socketActivation;
          settings = { inherit admin; };
        };
      };
    }).systemd.services.linerate-doctor.serviceConfig.IPAddressAllow;

  # What /etc/ssh has on a box with these additions.
  sshOf =
    module:
    lib.mapAttrs (_: file: file.source)
      (lib.evalModules {
        modules = [
          ../modules/appliance/base.nix
          module
          {
            options = {
              environment.etc = anything;
              linerate.appliance.enable = mkOption { default = true; };
              services.openssh.hostKeys = mkOption { type = types.listOf (types.attrsOf types.str); };
            };
            config._module.freeformType = types.lazyAttrsOf types.anything;
          }
        ];
      }).config.environment.etc;

  # What chrony's settings on a box with these additions say of the hardware's clock, by NixOS's own module.
  rtcOf =
    module:
    let
      inherit
        (lib.evalModules {
          modules = [
            ../modules/appliance/time.nix
            (pkgs.path + "/nixos/modules/services/networking/ntp/chrony.nix")
            module
            {
              options = {
                assertions = mkOption { type = types.listOf types.raw; };
                environment.memoryAllocator.provider = mkOption { default = "libc"; };
                linerate.appliance.enable = mkOption { default = true; };
                networking = {
                  networkmanager.enable = mkOption { default = false; };
                  timeServers = mkOption { default = [ "ntp.example" ]; };
                };
                services.timesyncd = anything;
                systemd.services = anything;
                time.hardwareClockInLocalTime = mkOption { default = false; };
              };
              config._module.freeformType = types.lazyAttrsOf types.anything;
              # The text of its settings is then in its command, in place of their path.
              config._module.args.pkgs = pkgs // {
                writeText = _: text: text;
              };
            }
          ];
        })
        config
        ;
    in
    lib.filter (lib.hasInfix "rtc") (
      lib.concatMap (lib.splitString " ") (
        lib.splitString "\n" config.systemd.services.chronyd.serviceConfig.ExecStart
      )
    )
    ++ named config;

  # The messages of the failed assertions; empty if all is well.
  refused = {
    "nothing contradicts itself by default" = {
      module = { };
      says = null;
    };
    "two services on one port" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings.listen = [ ":8090" ];
        };
        files.enable = true;
      };
      says = "services.linerate.files.settings.listen and services.linerate.links.settings.listen: :8090 and :8090 cannot both";
    };
    "an operators' port that is a visitors' elsewhere" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings.admin = "127.0.0.1:8090";
        };
        files.enable = true;
      };
      says = "services.linerate.files.settings.listen and services.linerate.links.settings.admin: :8090 and 127.0.0.1:8090";
    };
    "one address by two names" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings.admin = "localhost:8090";
        };
        files = {
          enable = true;
          settings.listen = [ "127.0.0.1:8090" ];
        };
      };
      says = "services.linerate.files.settings.listen and services.linerate.links.settings.admin: 127.0.0.1:8090 and localhost:8090";
    };
    "one port of two addresses is fine" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings.listen = [ "192.0.2.1:80" ];
        };
        files = {
          enable = true;
          settings.listen = [ "192.0.2.2:80" ];
        };
      };
      says = null;
    };
    "all of IPv4 and one address of IPv6 on one port are fine" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings = {
            listen = [
              "0.0.0.0:80"
              "[2001:db8::1]:80"
            ];
            admin = "0.0.0.0:8081";
          };
        };
        files = {
          enable = true;
          settings.admin = "[::1]:8081";
        };
      };
      says = null;
    };
    "all of IPv4 and one address of it on one port" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [
          "192.0.2.1:80"
          "0.0.0.0:80"
        ];
      };
      says = "services.linerate.links.settings.listen and services.linerate.links.settings.listen: 192.0.2.1:80 and 0.0.0.0:80 cannot both";
    };
    "all of IPv4 and one address of it in IPv6's form on one port" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [
          "0.0.0.0:80"
          "[::FFFF:192.0.2.1]:80"
        ];
      };
      says = "services.linerate.links.settings.listen and services.linerate.links.settings.listen: 0.0.0.0:80 and [::FFFF:192.0.2.1]:80 cannot both";
    };
    "all of IPv4 and all of both on one port" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [
          "0.0.0.0:80"
          "[0::0]:80"
        ];
      };
      says = "services.linerate.links.settings.listen and services.linerate.links.settings.listen: 0.0.0.0:80 and [0::0]:80 cannot both";
    };
    "all addresses and one of IPv6 on one port" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [
          "[2001:db8::1]:80"
          ":80"
        ];
      };
      says = "services.linerate.links.settings.listen and services.linerate.links.settings.listen: [2001:db8::1]:80 and :80 cannot both";
    };
    "an address that is there twice" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [
          ":80"
          ":80"
        ];
      };
      says = "services.linerate.links.settings.listen: :80 is there twice";
    };
    "no address at all" = {
      module.services.linerate.files = {
        enable = true;
        settings.listen = [ ];
      };
      says = "services.linerate.files.settings.listen: it is empty";
    };
    "a Unix socket for visitors who come by TCP alone" = {
      module.services.linerate.links = {
        enable = true;
        socketActivation = true;
        settings.listen = [ "unix:/run/links.sock" ];
      };
      says = "services.linerate.links.settings.listen: unix:/run/links.sock cannot be";
    };
    "a Unix socket that the sandbox forbids" = {
      module.services.linerate.links = {
        enable = true;
        settings.admin = "unix:/run/links.sock";
      };
      says = "services.linerate.links.settings.admin: the service may make no socket at /run/links.sock; with services.linerate.links.socketActivation";
    };
    "Unix sockets of systemd's are fine" = {
      module.services.linerate.api = {
        enable = true;
        socketActivation = true;
        settings = {
          listen = [ "unix:/run/api.sock" ];
          admin = "unix:/run/api-admin.sock";
        };
      };
      says = null;
    };
    "a console before a service that operators reach by TLS alone" = {
      module.services.linerate = {
        console.enable = true;
        links.enable = true;
        api = {
          enable = true;
          tls = {
            admin = true;
            certificate = "/chain.pem";
            key = "/key.pem";
          };
        };
      };
      says = "services.linerate.console: linerate-api answers operators by TLS alone";
    };
    "a console with its helper is fine" = {
      module.services.linerate = {
        links.enable = true;
        console = {
          enable = true;
          helper = true;
        };
      };
      says = null;
    };
    "a console with what writes files is fine" = {
      module.services.linerate = {
        links.enable = true;
        files.enable = true;
        console = {
          enable = true;
          filesWriter.enable = true;
        };
      };
      says = null;
    };
    "what writes files where there are none" = {
      module.services.linerate = {
        links.enable = true;
        console = {
          enable = true;
          filesWriter.enable = true;
        };
      };
      says = "services.linerate.console.filesWriter: there is no directory to write below";
    };
    "what writes files of a bucket" = {
      module.services.linerate = {
        links.enable = true;
        files = {
          enable = true;
          settings.origin = "s3://bucket/public";
        };
        console = {
          enable = true;
          filesWriter.enable = true;
        };
      };
      says = "services.linerate.console.filesWriter: there is no directory to write below";
    };
    "a console that nobody could sign in to" = {
      module.services.linerate.console.enable = true;
      says = "keys of linerate-links let people in";
    };
    "a setting that the console does not have" = {
      module.services.linerate.console = {
        enable = true;
        settings = {
          cache-bytes = 1;
          links = "127.0.0.1:8081";
        };
      };
      says = "linerate-console has no setting cache-bytes; `linerate console --help` lists them";
    };
    "a setting that there is not" = {
      module.services.linerate.links = {
        enable = true;
        settings.cach-bytes = 1;
      };
      says = "services.linerate.links: linerate-links has no setting cach-bytes";
    };
    "a proxy that is no network" = {
      module.services.linerate.files = {
        enable = true;
        settings.trusted-proxy = [
          "10.0.0.0/8"
          "10.0.0.0/33"
        ];
      };
      says = "services.linerate.files.settings.trusted-proxy: 10.0.0.0/33 is neither";
    };
    "proxies by address and by network are fine" = {
      module.services.linerate.links = {
        enable = true;
        settings = {
          public-url = "https://go.example";
          proxy-protocol = true;
          trusted-proxy = [
            "192.0.2.255"
            "0.0.0.0/0"
            "::1"
            "2001:db8::/32"
            "::ffff:10.0.0.0/104"
          ];
        };
      };
      says = null;
    };
    "a secret that is no setting" = {
      module.services.linerate.files = {
        enable = true;
        secrets.database-url = "/secret";
      };
      says = "services.linerate.files: linerate-files has no setting database-url";
    };
    "settings without a type, in a table, or with underscores are fine" = {
      module.services.linerate.links = {
        enable = true;
        settings = {
          redirect.max-age = 60;
          write_queue = 64;
        };
      };
      says = null;
    };
    "a port that there is not" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [ ":99999" ];
      };
      throws = true;
    };
    "an address that is none" = {
      module.services.linerate.links = {
        enable = true;
        settings.listen = [ "go.example:80" ];
      };
      throws = true;
    };
    "two replicas" = {
      module.services.linerate.links = {
        enable = true;
        replicas = [
          { url = "s3://one/links"; }
          { url = "s3://another/links"; }
        ];
      };
      says = "services.linerate.links.replica: Litestream takes one replica";
    };
    "one replica by its old name is fine" = {
      module.services.linerate.links = {
        enable = true;
        replicas = [ { url = "s3://bucket/links"; } ];
      };
      says = null;
    };
    "a card whose limits are not known is fine" = {
      module = card "mlx5_core" {
        queues = 64;
        rxRing = 8192;
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
    "a certificate whose name cannot name a credential" = {
      module.services.linerate.files = {
        enable = true;
        tls.certificates."a/b" = {
          certificate = "/chain.pem";
          key = "/key.pem";
        };
      };
      says = "services.linerate.files.tls.certificates: a/b is to name a credential";
    };
    "an admin listener by TLS without a certificate" = {
      module.services.linerate.api = {
        enable = true;
        tls.admin = true;
      };
      says = "services.linerate.api.tls.admin: TLS needs a certificate";
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
    "a replica of links in PostgreSQL" = {
      module.services.linerate.links = {
        enable = true;
        database.createLocally = true;
        replica.url = "s3://bucket/links";
      };
      says = "services.linerate.links.replica: Litestream streams the file";
    };
    "a password of links that everybody could read" = {
      module.services.linerate.links = {
        enable = true;
        settings.database = "postgres://links:hunter2@db.example/links";
      };
      says = "services.linerate.links.settings.database: everybody on the host could read its password";
    };
    "a password that everybody could read" = {
      module.services.linerate.api = {
        enable = true;
        settings.database-url = "postgres://api:hunter2@db.example/api";
      };
      says = "services.linerate.api.settings.database-url: everybody on the host could read its password";
    };
    "a password as a parameter that everybody could read" = {
      module.services.linerate.links = {
        enable = true;
        settings.database = "postgres://links@db.example/links?sslmode=verify-full&password=hunter2";
      };
      says = "services.linerate.links.settings.database: everybody on the host could read its password";
    };
    "a password as a keyword that everybody could read" = {
      module.services.linerate.api = {
        enable = true;
        settings.database-url = "host=db.example user=api password = hunter2";
      };
      says = "services.linerate.api.settings.database-url: everybody on the host could read its password";
    };
    "a password in a file of root's is fine" = {
      module.services.linerate = {
        links = {
          enable = true;
          settings.database = "postgres://password@db.example/password?passfile=links.pass";
        };
        api = {
          enable = true;
          settings.database-url = "host=db.example user=api passfile=api.pass";
        };
      };
      says = null;
    };
    "links in a file that the service cannot see" = {
      module.services.linerate.links = {
        enable = true;
        settings.database = "/home/me/links.db";
      };
      says = "services.linerate.links.settings.database: the service could not write /home/me/links.db";
    };
    "a database that is nowhere in particular" = {
      module.services.linerate.api = {
        enable = true;
        settings.database-url = "sqlite:api.db";
      };
      says = "services.linerate.api.settings.database-url: the service could not write api.db";
    };
    "files in a /tmp that is not the service's" = {
      module.services.linerate.files = {
        enable = true;
        settings.root = "/tmp/www";
      };
      says = "services.linerate.files.settings.root: the service has a /tmp";
    };
    "a root that is not used since there is an origin is fine" = {
      module.services.linerate.files = {
        enable = true;
        settings = {
          root = "/tmp/www";
          origin = "s3://bucket/public";
        };
      };
      says = null;
    };
    "TLS without a certificate" = {
      module.services.linerate.files = {
        enable = true;
        settings.tls-listen = [ ":443" ];
      };
      says = "TLS needs a certificate";
    };
    "links by TLS without a certificate" = {
      module.services.linerate.links = {
        enable = true;
        settings.tls-listen = [ ":443" ];
      };
      says = "services.linerate.links.settings.tls-listen: TLS needs a certificate";
    };
    "coalesced sends on ixgbe" = {
      module = card "ixgbe" { coalescing.TxCoalesceSec = "10us"; };
      says = "refuses TxCoalesceSec";
    };
  };

  judge =
    name:
    {
      module,
      says ? null,
      # Whether an option's type rejects the value, with the module system's own message.
      throws ? false,
    }:
    let
      evaluated = builtins.tryEval (builtins.deepSeq (failures module) (failures module));
      said = if evaluated.success then evaluated.value else [ "it throws" ];
      fits =
        if throws then
          !evaluated.success
        else if says == null then
          said == [ ]
        else
          lib.length said == 1 && lib.hasInfix says (lib.head said);
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

  # The part of the appliance for which NixOS before 26.11 has no options.
  countedBy =
    systemdBoot: rebootWindow:
    (lib.evalModules {
      specialArgs.lib = newer;
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
                enable = mkOption { default = systemdBoot; };
              };
            };
            linerate.appliance.enable = mkOption { default = true; };
            linerate.appliance.image.enable = mkOption { default = false; };
            assertions = mkOption { type = types.listOf types.raw; };
            linerate.packages = mkOption { default.links.generic = "links, for any CPU"; };
            system.autoUpgrade = anything;
            system.extraDependencies = mkOption { type = types.listOf types.str; };
            systemd.package = mkOption { default = pkgs.systemd; };
            systemd.services = anything;
            systemd.settings = anything;
          };
          config._module.args = { inherit pkgs; };
          config.linerate.appliance.update.flake = "git+https://git.example/boxes";
          config.system.autoUpgrade.rebootWindow = rebootWindow;
        }
      ];
    }).config;
  counted = countedBy true null;

  # A host in the form of an image. Of NixOS's options, it only has those that the assertions read.
  imaged = imagedBy { };
  imagedBy =
    module: image:
    (lib.evalModules {
      modules = [
        module
        ../modules/appliance/closure.nix
        ../modules/appliance/image
        ../modules/appliance/update.nix
        {
          options = {
            assertions = mkOption { type = types.listOf types.raw; };
            hardware.enableRedistributableFirmware = mkOption { default = false; };
            linerate.appliance.enable = mkOption { default = true; };
            boot.initrd.luks.devices = anything;
            fileSystems = mkOption {
              type = types.attrsOf (
                types.submodule (
                  { name, ... }:
                  {
                    freeformType = types.attrsOf types.anything;
                    options = {
                      mountPoint = mkOption { default = name; };
                      neededForBoot = mkOption { default = false; };
                    };
                  }
                )
              );
            };
            services.logrotate.settings = anything;
            systemd.package = mkOption { default = pkgs.systemd; };
            boot.loader.systemd-boot = {
              enable = mkOption { type = types.bool; };
              extraInstallCommands = mkOption { type = types.lines; };
            };
          };
          config._module.freeformType = types.lazyAttrsOf types.anything;
          config._module.args = {
            inherit pkgs;
            # NixOS's own.
            utils = import (pkgs.path + "/nixos/lib/utils.nix") {
              inherit lib pkgs;
              config = { };
            };
          };
          config.networking.hostName = "box";
          config.linerate.appliance.image = {
            enable = true;
            version = "2";
          }
          // image;
        }
      ];
    }).config;
  # The options at the start of the failed assertions.
  named =
    config:
    map (one: lib.head (lib.splitString ":" one.message)) (
      lib.filter (one: !one.assertion) config.assertions
    );
  nightly = counted.systemd.services.nixos-upgrade;

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
      equal "the doctor expects the sysctls in effect, whoever has set them"
        (
          let
            inherit
              ((evaluate {
                boot.kernel.sysctl = lib.mapAttrs (_: lib.mkForce) {
                  "net.core.default_qdisc" = "fq_codel";
                  "net.core.somaxconn" = "4096";
                  "net.ipv4.tcp_mtu_probing" = null;
                  "net.ipv4.tcp_slow_start_after_idle" = true;
                };
                linerate.tuning = {
                  kernel."net.ipv4.tcp_max_syn_backlog" = null;
                  nic.ten.driver = "ixgbe";
                };
              }).linerate.profile
              )
              kernel
              nic
              ;
          in
          [
            (builtins.intersectAttrs (lib.genAttrs [
              "net.core.default_qdisc"
              "net.core.rmem_max"
              "net.core.somaxconn"
              "net.ipv4.tcp_max_syn_backlog"
              "net.ipv4.tcp_mtu_probing"
              "net.ipv4.tcp_slow_start_after_idle"
            ] (_: null)) kernel.sysctl)
            nic.ten.qdisc
          ]
        )
        [
          {
            "net.core.default_qdisc" = "fq_codel";
            "net.core.rmem_max" = 7500000;
            "net.core.somaxconn" = "4096";
            "net.ipv4.tcp_slow_start_after_idle" = true;
          }
          "fq_codel"
        ]
    ++
      equal "a certificate of ACME is read where it is renewed"
        (evaluate byAcme).linerate.services.files.settings.cert
        "/var/lib/acme/files.example/fullchain.pem"
    ++
      equal "several certificates are named in order, with their keys"
        (
          let
            inherit ((evaluate byMany).linerate.services.links) settings;
          in
          [
            settings.cert
            settings.key
            (settings.admin-cert == settings.cert && settings.admin-key == settings.key)
          ]
        )
        [
          [
            "/run/linerate-links/credentials/certificate"
            "/run/linerate-links/credentials/certificate-b.example"
            "/var/lib/acme/c.example/fullchain.pem"
            "/var/lib/acme/d.example/fullchain.pem"
          ]
          [
            "/run/linerate-links/credentials/key"
            "/run/linerate-links/credentials/key-b.example"
            "/var/lib/acme/c.example/key.pem"
            "/var/lib/acme/d.example/key.pem"
          ]
          true
        ]
    ++
      equal "several certificates of ACME are read as a member of their group"
        (evaluate byMany).systemd.services.linerate-links.serviceConfig.SupplementaryGroups
        [ "acme" ]
    ++
      equal "nobody asks a listener by TLS whether it is ready"
        (evaluate byMany).linerate.services.links.readyUrl
        null
    ++
      equal "links by TLS is told what is set"
        (
          let
            inherit ((evaluate linksByTls).linerate.services.links) settings;
          in
          {
            inherit (settings)
              cert
              hsts
              https-redirect
              tls-listen
              ;
          }
        )
        {
          cert = "/run/linerate-links/credentials/certificate";
          hsts = 31536000;
          https-redirect = true;
          tls-listen = [ ":443" ];
        }
    ++
      equal "links by TLS is let through the firewall, HTTP/3 too"
        (with (evaluate linksByTls).networking.firewall; allowedTCPPorts ++ allowedUDPPorts)
        [
          80
          443
          443
        ]
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
      equal "logs in its own directory have the service make that"
        (
          let
            configured =
              settings:
              (evaluate {
                services.linerate.api = {
                  enable = true;
                  inherit settings;
                };
              }).systemd.services.linerate-api.serviceConfig.LogsDirectory or null;
          in
          map configured [
            { }
            { access-log = "-"; }
            { access-log = "/var/log/linerate-api/access.log"; }
            { audit-log = "/var/log/linerate-api/audit.log"; }
          ]
        )
        [
          null
          null
          "linerate-api"
          "linerate-api"
        ]
    ++
      equal "what has changed is reloaded, unless nothing may take over"
        (map
          (
            settings:
            let
              unit =
                (evaluate {
                  services.linerate.api = {
                    enable = true;
                    inherit settings;
                  };
                }).systemd.services.linerate-api;
            in
            [
              unit.reloadIfChanged
              (lib.hasInfix " reload --config " unit.serviceConfig.ExecReload)
              (lib.hasInfix " -HUP " unit.serviceConfig.ExecReload)
            ]
          )
          [
            { }
            { handover = null; }
          ]
        )
        [
          [
            true
            true
            false
          ]
          [
            false
            false
            true
          ]
        ]
    ++
      equal
        "a unit that another process is to take over is told by its sum, and its credentials by theirs"
        (
          let
            # The units that differ in a generation with one more module.
            differ =
              module:
              let
                sums =
                  modules:
                  lib.filter (lib.hasPrefix "LINERATE_UNIT")
                    (evaluate {
                      imports = [ { services.linerate.api.enable = true; } ] ++ modules;
                    }).systemd.services.linerate-api.serviceConfig.Environment;
                names = map (sum: lib.head (lib.splitString "=" sum));
              in
              names (lib.subtractLists (sums [ ]) (sums [ module ]));
          in
          map differ [
            { services.linerate.api.settings.max-batch = 10; }
            { systemd.services.linerate-api.serviceConfig.TasksMax = 100; }
            { services.linerate.api.secrets.database-url = "/secret"; }
          ]
        )
        [
          [ ]
          [ "LINERATE_UNIT" ]
          [
            "LINERATE_UNIT"
            "LINERATE_UNIT_CREDENTIALS"
          ]
        ]
    ++
      equal "the console asks the services that there are, by the program that operators have"
        (
          let
            evaluated = evaluate {
              services.linerate = {
                console.enable = true;
                links.enable = true;
                api = {
                  enable = true;
                  socketActivation = true;
                  settings.admin = "unix:/run/api-admin.sock";
                };
              };
            };
            command = evaluated.systemd.services.linerate-console.serviceConfig.ExecStart;
          in
          [
            (lib.getAttrs [ "links" "files" "api" "listen" ] evaluated.linerate.services.console.settings)
            (lib.hasInfix " console --config " command)
          ]
        )
        [
          {
            links = "127.0.0.1:8081";
            files = "none";
            api = "unix:/run/api-admin.sock";
            listen = [ "127.0.0.1:8110" ];
          }
          true
        ]
    ++
      equal
        "the console reads audit logs, and reaches Unix sockets, by the groups of their services alone"
        (
          let
            evaluated = evaluate {
              services.linerate = {
                console.enable = true;
                links = {
                  enable = true;
                  settings.audit-log = "/var/log/linerate-links/audit.log";
                };
                files.enable = true;
                api = {
                  enable = true;
                  socketActivation = true;
                  settings.admin = "unix:/run/api-admin.sock";
                };
              };
            };
            inherit (evaluated.linerate.services) console files;
          in
          [
            (lib.filterAttrs (name: _: lib.hasSuffix "-audit" name) console.settings)
            files.settings.admin-browse
            evaluated.systemd.services.linerate-console.serviceConfig.SupplementaryGroups
            (lib.getAttrs [
              "SocketMode"
              "SocketGroup"
            ] (socketOf evaluated "linerate-api-admin").socketConfig)
          ]
        )
        [
          { links-audit = "/var/log/linerate-links/audit.log"; }
          true
          [
            "linerate-api"
            "linerate-links"
          ]
          {
            SocketMode = "0660";
            SocketGroup = "linerate-api";
          }
        ]
    ++
      equal "what writes files has a user of its own, and is asked by the console's alone"
        (
          let
            evaluated = evaluate {
              services.linerate = {
                links.enable = true;
                files = {
                  enable = true;
                  settings.root = "/srv/www";
                };
                console = {
                  enable = true;
                  filesWriter = {
                    enable = true;
                    maxBytes = 1000;
                  };
                };
              };
            };
            inherit (evaluated.systemd.services.linerate-files-writer) serviceConfig;
          in
          [
            evaluated.linerate.services.console.settings.files-writer
            (lib.getAttrs [
              "User"
              "Group"
              "ReadWritePaths"
            ] serviceConfig)
            (serviceConfig.PrivateUsers or false)
            (lib.hasInfix "--root /srv/www " serviceConfig.ExecStart)
            (lib.hasInfix "--max-bytes 1000 " serviceConfig.ExecStart)
            (lib.getAttrs [
              "SocketUser"
              "SocketMode"
            ] evaluated.systemd.sockets.linerate-files-writer.socketConfig)
            evaluated.users.users.linerate-files-writer.group
          ]
        )
        [
          "unix:/run/linerate-files-writer/socket"
          {
            User = "linerate-files-writer";
            Group = "linerate-files";
            ReadWritePaths = [ "/srv/www" ];
          }
          false
          true
          true
          {
            SocketUser = "linerate-console";
            SocketMode = "0600";
          }
          "linerate-files"
        ]
    ++
      equal "each program knows the settings that its other options make"
        (
          let
            known = lib.importJSON ../modules/services/settings.json;
            services = (evaluate { }).services.linerate;
            evaluated = evaluate {
              services.linerate = lib.mapAttrs (
                name: _:
                {
                  enable = true;
                  socketActivation = true;
                  tls = {
                    certificate = "/chain.pem";
                    key = "/key.pem";
                    admin = true;
                  };
                }
                // lib.optionalAttrs (services.${name} ? workers) { workers = 2; }
                // lib.optionalAttrs (name == "console") {
                  helper = true;
                  filesWriter.enable = true;
                }
              ) known;
            };
          in
          lib.mapAttrs (
            name: service: lib.subtractLists known.${name} (lib.attrNames service.settings)
          ) evaluated.linerate.services
        )
        {
          api = [ ];
          console = [ ];
          files = [ ];
          links = [ ];
        }
    ++ equal "the console is where no queue is" (
      let
        evaluated = evaluate {
          services.linerate = {
            console.enable = true;
            links.enable = true;
          };
          linerate.tuning = {
            enable = true;
            cpu = {
              cores = twoCores;
              irqCpus = [
                0
                1
              ];
            };
          };
        };
      in
      evaluated.systemd.services.linerate-console.serviceConfig.CPUAffinity
    ) "2-3"
    ++
      equal
        "the profile has the limits of units as numbers, however they are said, and leaves out what is none"
        (
          let
            evaluated = evaluate {
              services.linerate = {
                console.enable = true;
                links.enable = true;
              };
              systemd.services.linerate-links.serviceConfig = lib.mapAttrs (_: lib.mkForce) {
                LimitNOFILE = "65536";
                TasksMax = "infinity";
                MemoryMax = "75%";
              };
            };
          in
          map (name: evaluated.linerate.profile.services."linerate-${name}.service".limits) [
            "console"
            "links"
          ]
        )
        [
          {
            open_files = 1280;
            tasks = 1024;
            memory_bytes = 256 * 1024 * 1024;
          }
          { open_files = 65536; }
        ]
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
      equal "a service that binds a low port may, and nobody else"
        (
          let
            evaluated = evaluate { services.linerate.links.enable = true; };
            inherit (evaluated.systemd.services.linerate-links) serviceConfig;
          in
          [
            serviceConfig.AmbientCapabilities
            serviceConfig.CapabilityBoundingSet
            serviceConfig.PrivateUsers
            (evaluated.boot.kernel.sysctl ? "net.ipv4.ip_unprivileged_port_start")
          ]
        )
        [
          [ "CAP_NET_BIND_SERVICE" ]
          [ "CAP_NET_BIND_SERVICE" ]
          false
          false
        ]
    ++
      equal "a service for which systemd binds needs no capability"
        (
          let
            inherit
              ((evaluate {
                services.linerate.links = {
                  enable = true;
                  socketActivation = true;
                };
              }).systemd.services.linerate-links
              )
              serviceConfig
              ;
          in
          [
            (serviceConfig.AmbientCapabilities or null)
            serviceConfig.PrivateUsers
          ]
        )
        [
          null
          true
        ]
    ++
      equal "links in the local PostgreSQL, and in one elsewhere"
        (map
          (
            module:
            let
              evaluated = evaluate {
                services.linerate.links = {
                  enable = true;
                }
                // module;
              };
              unit = evaluated.systemd.services.linerate-links;
            in
            {
              database = evaluated.linerate.services.links.settings.database or null;
              after = lib.intersectLists [
                "network-online.target"
                "postgresql.service"
                "postgresql.target"
              ] unit.after;
              credentials = unit.serviceConfig.LoadCredential;
              inherit (evaluated.linerate.services.links) databases;
              databasesHere = evaluated.services.postgresql.ensureDatabases or [ ];
            }
          )
          [
            { database.createLocally = true; }
            {
              secrets.database = "/secret";
              database.files."db.pem" = "/db.pem";
            }
          ]
        )
        [
          {
            database = "postgres://linerate-links@%2Frun%2Fpostgresql/linerate-links";
            # The unit's name in the release that this `lib` is from.
            after = [ (import ../modules/compatibility.nix { inherit lib; }).postgresql ];
            credentials = [ ];
            databases = {
              urls = [ ];
              files = [ ];
            };
            databasesHere = [ "linerate-links" ];
          }
          {
            database = null;
            after = [ "network-online.target" ];
            credentials = [
              "LINERATE_LINKS_DATABASE:/secret"
              "db.pem:/db.pem"
            ];
            databases = {
              urls = [ ];
              files = [ "/secret" ];
            };
            databasesHere = [ ];
          }
        ]
    ++
      equal "which databases are on another host"
        (map
          (
            url:
            (evaluate {
              services.linerate.api = {
                enable = true;
                settings.database-url = url;
              };
            }).linerate.services.api.databases.urls == [ url ]
          )
          [
            "sqlite:/var/lib/linerate-api/api.db"
            "postgres://api@%2Frun%2Fpostgresql/api"
            "postgres://api@localhost:5433/api"
            "postgresql://127.0.0.1/api"
            "postgres://[::1]/api"
            "postgres:///api"
            "postgres://api@db.example/api"
            "postgresql://db.example:5433/api"
            "postgres://[2001:db8::1]/api"
          ]
        )
        [
          false
          false
          false
          false
          false
          false
          true
          true
          true
        ]
    ++
      equal "a database's file elsewhere may be written, and its disk is waited for"
        (map
          (
            url:
            let
              unit =
                (evaluate {
                  services.linerate.api = {
                    enable = true;
                    settings.database-url = url;
                  };
                }).systemd.services.linerate-api;
            in
            [
              unit.serviceConfig.ReadWritePaths
              unit.unitConfig.RequiresMountsFor
            ]
          )
          [
            "sqlite:/data/api.db"
            "sqlite:///data/api.db"
            "sqlite:/var/lib/linerate-api/api.db"
            "postgres://api@localhost/api"
            "host=/run/postgresql dbname=api"
          ]
        )
        (
          map
            (directories: [
              directories
              directories
            ])
            [
              [ "/data" ]
              [ "/data" ]
              [ ]
              [ ]
              [ ]
            ]
        )
    ++
      equal "links in a file elsewhere may be written"
        (evaluate {
          services.linerate.links = {
            enable = true;
            settings.database = "/data/links.db";
          };
        }).systemd.services.linerate-links.serviceConfig.ReadWritePaths
        [ "/data" ]
    ++
      equal "a box that updates itself keeps what checks its settings" counted.system.extraDependencies
        [
          "links, for any CPU"
        ]
    ++
      equal "what is on a disk that may come late starts with it"
        (
          let
            evaluated = evaluate {
              fileSystems =
                lib.mapAttrs
                  (mountPoint: options: {
                    inherit mountPoint options;
                  })
                  {
                    "/" = [ "nofail" ];
                    "/srv" = [ "nofail" ];
                    "/srv/w" = [ "nofail" ];
                    "/srv/www" = [ "_netdev" ];
                    "/data" = [ "defaults" ];
                    "/of/me" = [ "noauto" ];
                    "/var/lib/linerate-api" = [ "nofail" ];
                  };
              services.linerate.api.enable = true;
              systemd.services.linerate-api.unitConfig.RequiresMountsFor = lib.mkForce "/of/me /of/you";
              services.linerate.files = {
                enable = true;
                settings.root = "/srv/www";
              };
              services.linerate.links = {
                enable = true;
                settings.database = "/data/links.db";
              };
            };
            inherit (evaluated.systemd.services) linerate-api linerate-files linerate-links;
          in
          map (unit: lib.subtractLists [ "multi-user.target" ] unit.wantedBy) [
            linerate-api
            linerate-files
            linerate-links
          ]
        )
        [
          [
            "of-me.mount"
            "var-lib-linerate-api.mount"
          ]
          [
            "srv.mount"
            "srv-www.mount"
          ]
          [ ]
        ]
    ++
      equal "what streams the links to their replica starts late with them"
        (
          let
            evaluated = evaluate {
              fileSystems.state = {
                mountPoint = "/var/lib/linerate-links";
                options = [ "nofail" ];
              };
              services.linerate.links = {
                enable = true;
                replica.url = "s3://bucket/links";
              };
            };
            inherit (evaluated.systemd.services) linerate-links linerate-litestream;
          in
          map (unit: lib.naturalSort unit.wantedBy) [
            linerate-links
            linerate-litestream
          ]
        )
        [
          [
            "multi-user.target"
            "var-lib-linerate-links.mount"
          ]
          [
            "multi-user.target"
            "var-lib-linerate-links.mount"
          ]
        ]
    ++ equal "a host may open the sandbox for places that it hides" (map (failed: failed.message) (
      lib.filter (assertion: !assertion.assertion)
        (evaluate {
          services.linerate.files = {
            enable = true;
            settings.root = "/tmp/www";
          };
          services.linerate.links = {
            enable = true;
            settings.database = "/home/me/links.db";
          };
          systemd.services.linerate-files.serviceConfig.PrivateTmp = false;
          systemd.services.linerate-links.serviceConfig.ProtectHome = false;
        }).assertions
    )) [ ]
    ++
      equal "the disk of files is waited for, and seen below /home too"
        (map
          (
            settings:
            let
              unit =
                (evaluate {
                  services.linerate.files = {
                    enable = true;
                    inherit settings;
                  };
                }).systemd.services.linerate-files;
            in
            [
              unit.unitConfig.RequiresMountsFor
              unit.serviceConfig.ProtectHome
            ]
          )
          [
            { root = "/srv/www"; }
            { root = "/home/me/www"; }
            {
              root = "/homes";
              rules = "/root/rules.toml";
            }
            {
              root = "/home/me/www";
              origin = "s3://bucket/public";
            }
          ]
        )
        [
          [
            [ "/srv/www" ]
            true
          ]
          [
            [ "/home/me/www" ]
            "read-only"
          ]
          [
            [
              "/homes"
              "/root/rules.toml"
            ]
            "read-only"
          ]
          [
            [ ]
            true
          ]
        ]
    ++
      equal "a database on another host is waited for by its network"
        ((evaluate {
          services.linerate.api = {
            enable = true;
            secrets.database-url = "/secret";
          };
        }).systemd.services.linerate-api.after
        )
        [
          "network-online.target"
          "network.target"
        ]
    ++
      equal "sockets wait for their addresses"
        (socketOf (evaluate {
          services.linerate.links = {
            enable = true;
            socketActivation = true;
            settings.listen = [ "192.0.2.1:80" ];
          };
        }) "linerate-links-public").socketConfig.FreeBind
        true
    ++
      equal "a service whose sockets listen elsewhere is another unit"
        (
          let
            required =
              listen: backlog:
              (evaluate {
                services.linerate.links = {
                  enable = true;
                  socketActivation = true;
                  settings = { inherit listen backlog; };
                };
              }).systemd.services.linerate-links.wants;
            first = required [ "192.0.2.1:80" ] 100;
          in
          [
            (first == required [ "192.0.2.1:80" ] 100)
            (first == required [ "192.0.2.2:80" ] 100)
            (first == required [ "192.0.2.1:80" ] 200)
          ]
        )
        [
          true
          false
          false
        ]
    ++
      equal "where sockets of systemd's listen"
        (map address.stream [
          ":80"
          "127.0.0.1:80"
          "unix:/run/api.sock"
        ])
        [
          "80"
          "127.0.0.1:80"
          "/run/api.sock"
        ]
    ++ equal "nothing of ours is in every session" ((evaluate {
      services.linerate = {
        links.enable = true;
        api.enable = true;
      };
    }).environment.variables or { }
    ) { }
    ++ equal "a fleet of nobody is fine" (fleet { }) [ ]
    ++ equal "a monitor of nobody is refused" (fleet { monitor.enable = true; }) [
      "linerate.fleet.monitor"
    ]
    ++
      equal "alert rules are in a file of their own, beside those of others"
        (
          let
            inherit
              ((evaluate (fleetOf {
                monitor.enable = true;
                nodes.a = { };
              })).services
              )
              prometheus
              ;
          in
          [
            (prometheus.rules or [ ])
            (map (file: file.name) prometheus.ruleFiles)
          ]
        )
        [
          [ ]
          [ "linerate-rules.json" ]
        ]
    ++ equal "a wave of no repository is refused" (fleet { wave = "canary"; }) [ "linerate.fleet.wave" ]
    ++ equal "a node of no wave is refused" (fleet {
      waves.enable = true;
      nodes.a = {
        wave = "wave9";
        services.links = "http://10.0.0.1:8081";
      };
    }) [ "linerate.fleet.nodes.a.wave" ]
    ++
      equal "a node that follows a wave and has no services is refused"
        (fleet {
          waves.enable = true;
          nodes = {
            a.wave = "canary";
            b = {
              wave = "canary";
              services.fleet = "http://10.0.0.1:8120";
            };
            # Only the monitor looks at it.
            c = { };
          };
        })
        [
          "linerate.fleet.nodes.a.services"
          "linerate.fleet.nodes.b.services"
        ]
    ++
      equal "a branch that is there twice, and a setting that there is not, are refused"
        (fleet {
          waves = {
            enable = true;
            source = "wave1";
            settings.cacerts = "/ca.pem";
          };
        })
        [
          "linerate.fleet.waves"
          "linerate.fleet.waves.settings"
        ]
    ++
      equal "what the program refuses in its file is refused before"
        (map
          (
            settings:
            (builtins.tryEval (
              builtins.deepSeq (evaluate (fleetOf settings)).linerate.fleet.waves.settings null
            )).success
          )
          (
            map
              (waves: {
                waves = {
                  enable = true;
                }
                // waves;
              })
              [
                {
                  names = [
                    "canary"
                    "v1.2_a-b"
                  ];
                }
                { settings.well-for = "31d"; }
                { names = [ "a/b" ]; }
                { names = [ "-d" ]; }
                { names = [ "a..b" ]; }
                { names = [ "a.lock" ]; }
                { source = "main."; }
                { settings.well-for = "30"; }
                { settings.well-for = "745h"; }
                { settings.well-for = "99999999999999999999d"; }
              ]
            ++
              map
                (url: {
                  waves.enable = true;
                  nodes.a = {
                    wave = "canary";
                    services.links = url;
                  };
                })
                [
                  "http://[2001:db8::1]:8081"
                  "https://box_1.example"
                  "http://u@box"
                  "http://box/x"
                ]
          )
        )
        [
          true
          true
          false
          false
          false
          false
          false
          false
          false
          false
          true
          true
          false
          false
        ]
    ++ equal "an address that two ways share is refused" (fleet {
      address = {
        bgp = announced // {
          routerId = "10.0.0.1";
          asn = 65001;
          neighbors.router = {
            address = "10.0.0.254";
            asn = 65000;
          };
        };
        vrrp = announced // {
          priority = 150;
        };
      };
    }) [ "linerate.fleet.address" ]
    ++ equal "an address that nobody hears of is refused" (fleet {
      address.bgp = announced // {
        routerId = "10.0.0.1";
        asn = 65001;
      };
    }) [ "linerate.fleet.address.bgp" ]
    ++ equal "a health check that asks nobody is refused" (fleet {
      address = {
        ready = [ ];
        nlb.enable = true;
      };
    }) [ "linerate.fleet.address" ]
    ++
      equal
        "the doctor reaches the services of its box, at whichever address they say that they are ready"
        (
          map (asked false) [
            "localhost:8081"
            ":8081"
            "10.0.0.1:8081"
            "[2001:db8::1]:8081"
            "unix:/run/admin"
          ]
          ++ [ (asked true "10.0.0.1:8081") ]
        )
        [
          [ "localhost" ]
          [ "localhost" ]
          [
            "localhost"
            "10.0.0.1"
          ]
          [
            "localhost"
            "2001:db8::1"
          ]
          [ "localhost" ]
          [
            "localhost"
            "10.0.0.1"
          ]
        ]
    ++
      equal "priorities by VRRP are so close that a box that is not ready has the lower one"
        (map
          (
            priority:
            (builtins.tryEval
              (evaluate (fleetOf {
                address.vrrp = { inherit priority; };
              })).linerate.fleet.address.vrrp.priority
            ).success
          )
          [
            101
            102
            201
            202
          ]
        )
        [
          false
          true
          true
          false
        ]
    ++
      equal "an address by VRRP is heard of through either firewall"
        (map
          (
            nftables:
            let
              config = evaluate {
                imports = [
                  (fleetOf {
                    address.vrrp = announced // {
                      priority = 150;
                    };
                  })
                ];
                networking.nftables.enable = nftables;
              };
            in
            config.networking.firewall
          )
          [
            true
            false
          ]
        )
        [
          { extraInputRules = "iifname \"eno1\" meta l4proto vrrp accept"; }
          { extraCommands = "ip46tables -A nixos-fw -i eno1 -p vrrp -j nixos-fw-accept"; }
        ]
    ++
      equal "addresses of the other family than the first are not announced, and yet set"
        (map
          (
            addresses:
            lib.filter (line: lib.match ".*(virtual_ip|/).*" line != null && !lib.hasInfix "file" line) (
              lib.splitString "\n" (
                import ../modules/fleet/keepalived.nix { inherit lib; } {
                  inherit addresses;
                  interface = "eno1";
                  interval = 100;
                  priority = 150;
                  virtualRouterId = 51;
                } "/track"
              )
            )
          )
          [
            [ "192.0.2.10" ]
            [
              "2001:db8::10"
              "192.0.2.10"
              "2001:db8::11"
            ]
          ]
        )
        [
          [
            "  virtual_ipaddress {"
            "    192.0.2.10/32"
          ]
          [
            "  virtual_ipaddress {"
            "    2001:db8::10/128"
            "    2001:db8::11/128"
            "  virtual_ipaddress_excluded {"
            "    192.0.2.10/32"
          ]
        ]
    ++
      equal "a wave is a branch of its repository, whatever else the repository's URL says"
        (map
          (
            flake:
            (evaluate (fleetOf {
              inherit flake;
              wave = "canary";
            })).linerate.appliance.update.flake
          )
          [
            "git+https://git.example/boxes"
            "git+https://git.example/boxes?shallow=1"
          ]
        )
        [
          "git+https://git.example/boxes?ref=canary"
          "git+https://git.example/boxes?shallow=1&ref=canary"
        ]
    ++
      equal "a boot is judged even if a service never starts"
        (boxed.linerate-health.unitConfig.JobTimeoutSec or null)
        87060
    ++
      equal "/etc/ssh leads to the box's own host key, unless a host has other links or other keys"
        (map sshOf [
          { }
          { environment.etc."ssh/ssh_host_ed25519_key".source = "/persist/key"; }
          {
            services.openssh.hostKeys = [
              {
                path = "/persist/ssh_host_ed25519_key";
                type = "ed25519";
              }
            ];
          }
          # NixOS's own path, where the key was reached by the link.
          {
            services.openssh.hostKeys = [
              {
                path = "/etc/ssh/ssh_host_ed25519_key";
                type = "ed25519";
              }
            ];
          }
        ])
        [
          {
            "ssh/ssh_host_ed25519_key" = "/var/lib/ssh/ssh_host_ed25519_key";
            "ssh/ssh_host_ed25519_key.pub" = "/var/lib/ssh/ssh_host_ed25519_key.pub";
          }
          {
            "ssh/ssh_host_ed25519_key" = "/persist/key";
            "ssh/ssh_host_ed25519_key.pub" = "/var/lib/ssh/ssh_host_ed25519_key.pub";
          }
          { }
          {
            "ssh/ssh_host_ed25519_key" = "/var/lib/ssh/ssh_host_ed25519_key";
            "ssh/ssh_host_ed25519_key.pub" = "/var/lib/ssh/ssh_host_ed25519_key.pub";
          }
        ]
    ++
      equal "without trials, no boot is decided by its health"
        (map
          (
            trial:
            let
              inherit ((boxedBy trial)) linerate-health;
            in
            [
              (linerate-health.requiredBy or [ ])
              (linerate-health.before or [ ])
              (linerate-health.onFailure or [ ])
              linerate-health.wantedBy
            ]
          )
          [
            true
            false
          ]
        )
        [
          [
            [ "boot-complete.target" ]
            [ "boot-complete.target" ]
            [ "linerate-fall-back.service" ]
            [ ]
          ]
          [
            [ ]
            [ ]
            [ ]
            [ "multi-user.target" ]
          ]
        ]
    ++
      equal
        "chrony tells the kernel that the clock is synchronised, unless a host has it trim the hardware's clock"
        (map rtcOf [
          { }
          { services.chrony.extraConfig = "allow 10.0.0.0/8"; }
          { services.chrony.enableRTCTrimming = true; }
        ])
        [
          [
            "rtconutc"
            "rtcsync"
          ]
          [
            "rtconutc"
            "rtcsync"
          ]
          [
            "rtcfile"
            "/var/lib/chrony/chrony.rtc"
            "rtcautotrim"
            "rtconutc"
          ]
        ]
    ++ equal "a switch judges no boot again" (boxed.linerate-health.restartIfChanged or null) false
    ++
      equal "settings of user data stay while a switch reloads the services"
        {
          inherit (boxed.linerate-user-data) stopIfChanged;
          inherit (boxed.linerate-user-data.serviceConfig) RuntimeDirectoryPreserve;
        }
        {
          stopIfChanged = false;
          RuntimeDirectoryPreserve = true;
        }
    ++ equal "only this machine reaches the ports of the one to try things out in" (lib.unique (
      map (port: port.host.address or null)
        (import ../hosts/vm {
          inherit lib pkgs;
          config.networking.hostName = "vm";
          modulesPath = "";
        }).virtualisation.forwardPorts
    )) [ "127.0.0.1" ]
    ++
      equal "an update boots where anything has changed"
        (lib.hasInfix "/bin/linerate-reboot /run/booted-system /nix/var/nix/profiles/system " nightly.postStart)
        true
    ++
      equal "what an update installs knows that nobody chose it"
        [
          nightly.preStart
          nightly.postStop
        ]
        [
          "touch /run/linerate-nightly"
          "rm -f /run/linerate-nightly"
        ]
    ++ equal "an image with a version is fine" (named (imaged { })) [ ]
    ++
      equal "an image forbids what every appliance forbids, and more, unless a host says otherwise"
        (map
          (
            expressions:
            let
              inherit ((imagedBy { linerate.appliance.forbidden = expressions; } { }).linerate.appliance)
                forbidden
                ;
            in
            map (one: lib.elem one forbidden) [
              "-perl-[0-9]"
              "-gcc-[0-9.]+$"
              "-linux-firmware-"
              "-python3-"
              "-nix-[0-9]"
              "-vim-"
            ]
          )
          [
            [ ]
            [ "-vim-" ]
            (lib.mkForce [ "-vim-" ])
          ]
        )
        [
          [
            true
            true
            true
            true
            true
            false
          ]
          [
            true
            true
            true
            true
            true
            true
          ]
          [
            false
            false
            false
            false
            false
            true
          ]
        ]
    ++
      equal "a version of an image has no tries where there are no trials, and its boot counts as good"
        (map
          (
            trial:
            let
              config = imagedBy { linerate.appliance.update = { inherit trial; }; } { };
            in
            [
              (builtins.fromJSON (
                builtins.unsafeDiscardStringContext config.environment.etc."linerate/update.json".text
              )).tries
              (config.systemd.services ? systemd-bless-boot)
            ]
          )
          [
            true
            false
          ]
        )
        [
          [
            2
            true
          ]
          [
            0
            true
          ]
        ]
    ++
      equal "an image that would wait for mounts and locked disks of the host's other form is refused"
        (map (module: named (imagedBy module { })) [
          {
            fileSystems = {
              "/".device = "/dev/mapper/root";
              "/boot".device = "/dev/sda1";
              "/data".device = "/dev/sdb1";
              "/nix/store".device = "/dev/sda2";
              "/var".neededForBoot = false;
              # Nobody waits for a disk for these.
              "/var/log" = {
                device = "none";
                fsType = "tmpfs";
              };
              "/var/lib" = {
                device = "/var/persist";
                options = [ "bind" ];
              };
            };
          }
          { fileSystems."/nix".device = "/dev/sda2"; }
          { fileSystems."/var/log".device = "/dev/sda3"; }
          {
            fileSystems."/persist" = {
              device = "/dev/sda4";
              neededForBoot = true;
            };
          }
          { boot.initrd.luks.devices.root.device = "/dev/sda2"; }
        ])
        [
          [ ]
          [ "fileSystems" ]
          [ "fileSystems" ]
          [ "fileSystems" ]
          [ "boot.initrd.luks.devices" ]
        ]
    ++ equal "an image may lock its own /var" (named (imaged {
      var.encrypt = true;
    })) [ ]
    ++
      equal "an image without a version is refused"
        (named (imaged {
          version = null;
        }))
        [
          "linerate.appliance.image.version"
        ]
    ++ equal "a version that no partition can be called by is refused" (named (imaged {
      version = "123456789.123456789.123456789.1";
    })) [ "linerate.appliance.image.version" ]
    ++ equal "updates that nobody signs are refused" (named (imaged {
      update.source = "https://updates.example/";
    })) [ "linerate.appliance.image.update.key" ]
    ++ equal "/var that only one boot file opens is refused" (named (imaged {
      var = {
        encrypt = true;
        pcrs = [ 11 ];
      };
    })) [ "linerate.appliance.image.var.pcrs" ]
    ++
      equal "an hour for updates from nowhere is refused"
        (named (imaged {
          update.at = "03:40";
        }))
        [
          "linerate.appliance.image.update.at"
        ]
    ++
      equal "a floor above the version is refused"
        (named (imaged {
          update.floor = "2.1";
        }))
        [
          "linerate.appliance.image.update.floor"
        ]
    ++ equal "a trial that can be counted is fine" (named counted) [ ]
    ++ equal "a trial without systemd-boot is refused" (named (countedBy false null)) [
      "linerate.appliance.update.trial"
    ]
    ++ equal "an update that has to wait for a window is refused" (named (
      countedBy true {
        lower = "01:00";
        upper = "05:00";
      }
    )) [ "linerate.appliance.update.flake" ]
    ++ equal "a program checks its settings when the system is built" (lib.hasInfix
      "serve --check --config"
      (evaluate {
        _module.args.pkgs = lib.mkForce (
          pkgs
          // {
            runCommand =
              _: _: text:
              text;
          }
        );
        services.linerate.links.enable = true;
      }).systemd.services.linerate-links.serviceConfig.ExecStart
    ) true
    ++
      equal "boots are counted where NixOS can, by systemd's own unit"
        {
          inherit (counted.boot.loader.systemd-boot) bootCounting;
          inherit (counted.systemd.settings.Manager) RuntimeWatchdogSec;
          bless = counted.systemd.services.systemd-bless-boot;
        }
        {
          bootCounting = {
            enable = true;
            tries = 2;
          };
          RuntimeWatchdogSec = "30s";
          bless.restartIfChanged = false;
        }
    ++
      equal "a certificate and a database are waited for by the units of newer releases"
        (
          let
            inherit
              (evaluateBy newer {
                imports = [ byAcme ];
                services.linerate.api = {
                  enable = true;
                  database.createLocally = true;
                };
              })
              systemd
              ;
          in
          {
            api = lib.intersectLists [ "postgresql.target" ] systemd.services.linerate-api.after;
            inherit (systemd.services.linerate-files) wants;
            restarts = systemd.services.postgresql.serviceConfig ? Restart;
          }
        )
        {
          api = [ "postgresql.target" ];
          wants = [ "acme-files.example.service" ];
          restarts = false;
        };
in
if wrong == [ ] then
  pkgs.runCommand "linerate-nix-cases" { } "touch $out"
else
  throw (lib.concatStringsSep "\n" wrong)
