{
  nixpkgs.hostPlatform = "x86_64-linux";
  system.stateVersion = "26.05";
  networking.hostName = "box";

  # What `nixos-generate-config` says of your machine.
  boot.loader.systemd-boot.enable = true;
  boot.initrd.availableKernelModules = [
    "ahci"
    "nvme"
  ];

  linerate = {
    # A small system around the services; yours is the key that may log in.
    appliance = {
      enable = true;
      ssh.keys = [ "ssh-ed25519 AAAA… you@example" ];
    };
    # Say what the machine is, and what follows from it is set, placed and verified.
    tuning = {
      enable = true;
      memoryMiB = 32 * 1024;
      nic.front.driver = "ixgbe";
    };
  };

  services.linerate.links = {
    enable = true;
    openFirewall = true;
    settings.public-url = "https://go.example";
  };
}
