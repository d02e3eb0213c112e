# Everything on one machine in QEMU: `nix run .#vm` boots this.
{
  config,
  lib,
  modulesPath,
  pkgs,
  ...
}:
let
  certificates = "/var/lib/certificates";
  tls = {
    certificate = "${certificates}/chain.pem";
    key = "${certificates}/key.pem";
  };
  certified = rec {
    requires = [ "linerate-certificate.service" ];
    after = requires;
  };
  # Ports of this machine, and of the guest.
  forwarded = {
    "8080" = 80;
    "8090" = 8090;
    "8100" = 8100;
    "8443" = 8443;
    "8444" = 8444;
  };
in
{
  imports = [
    ../common.nix
    (modulesPath + "/virtualisation/qemu-vm.nix")
  ];

  networking.hostName = "linerate-vm";

  services.linerate = {
    links = {
      # Connections wait while a new generation takes over.
      socketActivation = true;
      settings.public-url = "http://localhost:8080";
      inherit tls;
      settings.tls-listen = [ ":8444" ];
    };
    files = {
      inherit tls;
      settings.tls-listen = [ ":8443" ];
    };
    # On its own SQLite. A host that isn't just for trying things out should ask for keys.
    api = {
      enable = true;
      openFirewall = true;
      settings.auth = "none";
    };
  };

  # A certificate that the machine makes itself, before the services that need it start.
  systemd.services.linerate-links = certified;
  systemd.services.linerate-files = certified;
  systemd.services.linerate-certificate = {
    description = "Certificate to try TLS with";
    path = [ pkgs.openssl ];
    serviceConfig = import ../../modules/sandbox.nix { } // {
      Type = "oneshot";
      RemainAfterExit = true;
      StateDirectory = baseNameOf certificates;
      StateDirectoryMode = "0700";
      PrivateNetwork = true;
    };
    script = ''
      cd ${certificates}
      [ -s chain.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,DNS:${config.networking.hostName} \
        -keyout key.pem -out chain.pem
    '';
  };

  virtualisation = {
    graphics = false;
    cores = 2;
    memorySize = 1024;
    # On this machine: links at 8080, files at 8090, api at 8100; with TLS, files at 8443 and links at 8444.
    forwardPorts = lib.mapAttrsToList (here: there: {
      from = "host";
      # Otherwise QEMU listens on all of this machine's addresses.
      host.address = "127.0.0.1";
      host.port = lib.toInt here;
      guest.port = there;
    }) forwarded;
  };

  linerate = {
    # QEMU boots it without a loader.
    appliance.update.trial = false;
    tuning = {
      cpu.virtual = true;
      nic.eth.driver = "virtio_net";
    };
  };

  # A machine to look around in, reachable only from this one.
  services.getty.autologinUser = lib.mkDefault "root";
}
