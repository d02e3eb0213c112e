# Each module by itself, in a system with nothing else of ours. Evaluating this is the test: an option that only another
# module has, or an assertion that fails, ends it.
{
  lib,
  modules,
  overlay,
  pkgs,
}:
let
  machine = {
    imports = [ modules.disk ];
    nixpkgs.hostPlatform = pkgs.stdenv.hostPlatform.system;
    system.stateVersion = "26.05";
    boot.loader.grub.enable = false;
    documentation.enable = false;
    users.allowNoPasswordLogin = true;
  };

  systems = {
    links = {
      services.linerate.links = {
        enable = true;
        workers = 2;
        replica.url = "s3://bucket/links";
        settings = {
          public-url = "https://go.example";
          # A setting without a type here.
          redirect-body = true;
        };
      };
      # Releases before 25.11 have a Litestream with a known vulnerability.
      nixpkgs.config.allowInsecurePredicate =
        package: lib.versionOlder lib.trivial.release "25.11" && lib.getName package == "litestream";
    };

    api.services.linerate.api = {
      enable = true;
      openFirewall = true;
      database.createLocally = true;
    };

    console.services.linerate.console = {
      enable = true;
      openFirewall = true;
      settings = {
        listen = [ ":8110" ];
        # Somebody else's, whose module isn't here.
        links = "unix:/run/links-admin.sock";
      };
    };

    files.services.linerate.files = {
      enable = true;
      openFirewall = true;
      socketActivation = true;
      tls = {
        certificate = "/var/lib/certificates/chain.pem";
        key = "/var/lib/certificates/key.pem";
      };
      rules.rule = [
        {
          path = "/pub/*";
          listing = true;
        }
      ];
    };

    fleet.linerate.fleet = {
      nodes.one = {
        wave = "canary";
        services.links = "https://one.example:8081";
      };
      address = {
        ready = [ "http://127.0.0.1:8081/readyz" ];
        bgp = {
          enable = true;
          addresses = [
            "192.0.2.10"
            "2001:db8::10"
          ];
          routerId = "10.0.0.1";
          asn = 65001;
          interface = "eno1";
          neighbors.router = {
            address = "10.0.0.254";
            asn = 65000;
          };
        };
        nlb.enable = true;
      };
      monitor.enable = true;
      waves.enable = true;
    };

    # Somebody's host with its own settings for ssh, the firewall, the clock and a database, with another service's logs,
    # and with what `nixos-generate-config` writes for a real machine.
    default = {
      imports = [ (pkgs.path + "/nixos/modules/installer/scan/not-detected.nix") ];
      boot.loader.systemd-boot.enable = true;
      networking = {
        firewall.enable = false;
        nftables.enable = false;
      };
      services = {
        chrony.enable = false;
        timesyncd.enable = true;
        openssh = {
          ports = [ 2222 ];
          settings = {
            PasswordAuthentication = true;
            MaxAuthTries = 6;
          };
        };
        postgresql = {
          enable = true;
          enableTCPIP = true;
        };
        nginx.enable = true;
        litestream = {
          enable = true;
          settings.dbs = [ { path = "/var/lib/theirs/theirs.db"; } ];
        };
        linerate = {
          api = {
            enable = true;
            database.createLocally = true;
          };
          links = {
            enable = true;
            replica.url = "s3://bucket/links";
            settings = {
              # A port that ssh doesn't use.
              listen = [ ":22" ];
              public-url = "https://go.example";
            };
          };
        };
      };
      linerate = {
        appliance.enable = true;
        tuning.enable = true;
        cpu =
          {
            aarch64-linux = "neoverse-v1";
            x86_64-linux = "icelake-server";
          }
          .${pkgs.stdenv.hostPlatform.system};
        guided = true;
      };
      nixpkgs.config.allowInsecurePredicate =
        package: lib.versionOlder lib.trivial.release "25.11" && lib.getName package == "litestream";
    };

    tuning.linerate.tuning = {
      enable = true;
      wan = true;
      profile = "latency";
      nic.ena.driver = "ena";
    };

    appliance.boot.loader.systemd-boot.enable = true;
    appliance.linerate.appliance = {
      enable = true;
      ssh = {
        interface = "eno1";
        keys = [ "ssh-ed25519 AAAA" ];
      };
      metrics.interface = "eno1";
      update.flake = "git+https://git.example/boxes";
    };
    # Somebody else's.
    appliance.services.postgresql.enable = true;
  };

  configurations = lib.mapAttrs (
    name: module:
    (lib.nixosSystem {
      modules = [
        machine
        modules.${name}
        module
      ];
    }).config
  ) systems;

  # Without its string context, so that the systems needn't be built for this.
  evaluated = lib.mapAttrsToList (
    _: config: builtins.unsafeDiscardStringContext config.system.build.toplevel.drvPath
  ) configurations;

  # The settings that somebody has made for a host stay in effect.
  theirs = configurations.default;
  kept = {
    ports = theirs.services.openssh.ports == [ 2222 ];
    passwords = theirs.services.openssh.settings.PasswordAuthentication;
    tries = theirs.services.openssh.settings.MaxAuthTries == 6;
    firewall = !theirs.networking.firewall.enable && !theirs.networking.nftables.enable;
    clock = theirs.services.timesyncd.enable && !theirs.services.chrony.enable;
    database = theirs.services.postgresql.settings.listen_addresses == "*";
    others = configurations.appliance.services.postgresql.settings.listen_addresses == "localhost";
    litestream = theirs.systemd.services.litestream.serviceConfig.User == "litestream";
    # Its programs are the guided ones, whose name the overlay has too.
    guided =
      theirs.linerate.packages.links.drvPath == (pkgs.extend overlay)
      ."linerate-links-${theirs.linerate.cpu}-guided".drvPath;
    # What is left out elsewhere.
    rotation = theirs.services.logrotate.enable && !configurations.appliance.services.logrotate.enable;
    firmware =
      map
        (config: [
          config.hardware.enableRedistributableFirmware
          (lib.elem "-linux-firmware-" config.system.forbiddenDependenciesRegexes)
        ])
        [
          theirs
          configurations.appliance
        ] == [
        [
          true
          false
        ]
        [
          false
          true
        ]
      ];
    variables = !lib.any (lib.hasPrefix "LINERATE_") (lib.attrNames theirs.environment.variables);
    # Without any setting, NixOS's default stays in effect.
    alone =
      configurations.api.services.postgresql.settings.listen_addresses == "localhost"
      && !configurations.links.services.openssh.enable
      && configurations.links.services.timesyncd.enable;
    # A warning reports what doesn't work in that case.
    told = lib.any (lib.hasInfix "connections of the services are tracked") theirs.warnings;
  };

  # The host for EC2 as an image, whose /etc and / cannot be written: what NixOS's units for EC2 write is elsewhere.
  instance =
    (lib.nixosSystem {
      modules = [
        modules.default
        ../hosts/aws-c6i
        {
          linerate.appliance.image = {
            enable = true;
            version = "1";
          };
        }
      ];
    }).config;
  onInstance =
    let
      inherit (instance.systemd.services) apply-ec2-data fetch-ec2-metadata;
      metadata = instance.environment.etc.ec2-metadata;
      run = "/run/${fetch-ec2-metadata.serviceConfig.RuntimeDirectory}";
      keys = lib.unique (map (key: dirOf key.path) instance.services.openssh.hostKeys);
    in
    {
      metadata =
        lib.hasInfix "metaDir=/etc/ec2-metadata\n" fetch-ec2-metadata.script
        && metadata.source == run
        && metadata.mode == "direct-symlink"
        && fetch-ec2-metadata.serviceConfig.RuntimeDirectoryPreserve;
      rootsKey =
        lib.hasInfix "mkdir -p /root/.ssh" apply-ec2-data.script
        && instance.fileSystems."/root".fsType == "tmpfs";
      hostsKey =
        lib.hasInfix "chmod 0755 /etc/ssh" apply-ec2-data.script
        && apply-ec2-data.serviceConfig.BindPaths == map (directory: "${directory}:/etc/ssh") keys;
    };
  lost = lib.attrNames (lib.filterAttrs (_: held: !held) onInstance);

  # ssh on the port of a service, whoever sets it.
  refused = lib.filter (lib.hasPrefix "services.openssh.ports, or linerate.appliance.ssh.port: ") (
    map (one: one.message) (
      lib.filter (one: !one.assertion)
        (lib.nixosSystem {
          modules = [
            machine
            modules.default
            systems.default
            { services.openssh.ports = lib.mkForce [ 22 ]; }
          ];
        }).config.assertions
    )
  );
  taken = lib.attrNames (lib.filterAttrs (_: held: !held) kept);

  # The packages, by the names that the overlay gives them.
  overlaid = map (name: (pkgs.extend overlay).${name}.drvPath) [
    "linerate"
    "linerate-api"
    "linerate-files"
    "linerate-links"
  ];
in
assert taken == [ ] || throw "the modules take over a host: ${toString taken}";
assert lost == [ ] || throw "an image on EC2 cannot write: ${toString lost}";
assert lib.length refused == 1 || throw "ssh may listen where links does";
assert lib.all (lib.hasSuffix ".drv") overlaid;
pkgs.runCommand "linerate-nix-modules" { inherit evaluated; } "touch $out"
