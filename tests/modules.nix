# Each module by itself, in a system that has nothing else of ours. Evaluating this is the test: an option that only
# another module has, or an assertion that fails, ends it.
{
  lib,
  modules,
  pkgs,
}:
let
  machine = {
    nixpkgs.hostPlatform = "x86_64-linux";
    system.stateVersion = "26.05";
    boot.loader.grub.enable = false;
    documentation.enable = false;
    fileSystems."/" = {
      device = "/dev/disk/by-label/nixos";
      fsType = "ext4";
    };
    users.allowNoPasswordLogin = true;
  };

  systems = {
    links = {
      services.linerate.links = {
        enable = true;
        workers = 2;
        replicas = [ { url = "s3://bucket/links"; } ];
        settings = {
          public-url = "https://go.example";
          # A setting that has no type here.
          redirect-body = true;
        };
      };
      # Releases before 25.11 have a Litestream with a known vulnerability.
      nixpkgs.config.allowInsecurePredicate = package: lib.getName package == "litestream";
    };

    api.services.linerate.api = {
      enable = true;
      openFirewall = true;
      database.createLocally = true;
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

    tuning.linerate.tuning = {
      enable = true;
      wan = true;
      profile = "latency";
      nic.ena.driver = "ena";
    };

    appliance.linerate.appliance = {
      enable = true;
      ssh = {
        interface = "eno1";
        keys = [ "ssh-ed25519 AAAA" ];
      };
      metrics.interface = "eno1";
      update.flake = "git+https://git.example/boxes";
    };
  };

  evaluate =
    name: module:
    (lib.nixosSystem {
      modules = [
        machine
        modules.${name}
        module
      ];
    }).config.system.build.toplevel.drvPath;

  # Without its context: the systems need not be built for this.
  evaluated = lib.mapAttrsToList (
    name: module: builtins.unsafeDiscardStringContext (evaluate name module)
  ) systems;
in
pkgs.runCommand "linerate-nix-modules" { inherit evaluated; } "touch $out"
