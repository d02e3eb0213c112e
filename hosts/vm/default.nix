# Everything on one machine, in QEMU: what `nix run .#vm` boots.
{ lib, modulesPath, ... }:
{
  imports = [ (modulesPath + "/virtualisation/qemu-vm.nix") ];

  nixpkgs.hostPlatform = "x86_64-linux";
  system.stateVersion = "26.05";
  networking.hostName = "linerate-vm";

  services.linerate = {
    links = {
      enable = true;
      openFirewall = true;
      # Connections wait while a new generation takes over.
      socketActivation = true;
      settings.public-url = "http://localhost:8080";
    };
    files = {
      enable = true;
      openFirewall = true;
    };
  };

  virtualisation = {
    graphics = false;
    cores = 2;
    memorySize = 1024;
    # On this machine: links at 8080, files at 8090.
    forwardPorts = [
      {
        from = "host";
        host.port = 8080;
        guest.port = 80;
      }
      {
        from = "host";
        host.port = 8090;
        guest.port = 8090;
      }
    ];
  };

  linerate = {
    appliance = {
      enable = true;
      # What QEMU's module brings is not looked at: this is no image that is shipped.
      forbidden = [ ];
    };
    tuning = {
      enable = true;
      cpu.virtual = true;
      nic.eth.driver = "virtio_net";
    };
  };

  # A machine to look around in, reachable from this one only.
  services.getty.autologinUser = lib.mkDefault "root";
  users.allowNoPasswordLogin = true;
}
