# Everything on one machine, in QEMU: what `nix run .#vm` boots.
{ lib, modulesPath, ... }:
{
  imports = [
    ../common.nix
    (modulesPath + "/virtualisation/qemu-vm.nix")
  ];

  networking.hostName = "linerate-vm";

  services.linerate.links = {
    # Connections wait while a new generation takes over.
    socketActivation = true;
    settings.public-url = "http://localhost:8080";
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
    # What QEMU's module brings is not looked at: this is no image that is shipped.
    appliance.forbidden = [ ];
    tuning = {
      cpu.virtual = true;
      nic.eth.driver = "virtio_net";
    };
  };

  # A machine to look around in, reachable from this one only.
  services.getty.autologinUser = lib.mkDefault "root";
}
