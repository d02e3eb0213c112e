{
  nixpkgs.hostPlatform = "x86_64-linux";
  system.stateVersion = "26.05";
  networking.hostName = "box";

  # The output of `nixos-generate-config` for your machine.
  boot.loader.systemd-boot.enable = true;
  boot.initrd.availableKernelModules = [
    "ahci"
    "nvme"
  ];
  # The root of an image grows when it boots.
  boot.growPartition = true;

  linerate = {
    # A small system around the services; this key may log in, so replace it with yours.
    appliance = {
      enable = true;
      ssh.keys = [ "ssh-ed25519 AAAA… you@example" ];
    };
    # Describe the machine, and what follows from that is set, placed and verified.
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
