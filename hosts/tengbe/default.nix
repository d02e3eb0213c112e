# Bare metal with a 10 Gbit/s port (Intel X550): Core i7-12700H, 6 fast cores with two threads each (0 to 11) and 8 slow
# ones (12 to 19).
#
#   nix build .#tengbe-image && dd if=result/nixos.img of=/dev/DISK bs=4M conv=fsync
#
# Then write your public key into `authorized_keys` on the disk's EFI partition, and boot.
{ lib, ... }:
let
  fast = lib.genList (core: [
    (2 * core)
    (2 * core + 1)
  ]) 6;
  slow = map lib.singleton (lib.range 12 19);
in
{
  imports = [
    ../common.nix
    ../../modules/appliance/disk.nix
  ];

  networking.hostName = "linerate-tengbe";

  boot.loader.systemd-boot.enable = true;
  boot.initrd.availableKernelModules = [
    "ahci"
    "nvme"
    "usb_storage"
    "xhci_pci"
  ];
  hardware.cpu.intel.updateMicrocode = true;

  # The root of an image grows when it boots.
  boot.growPartition = true;

  services.openssh = {
    authorizedKeysFiles = [ "/boot/authorized_keys" ];
    authorizedKeysInHomedir = false;
  };

  linerate = {
    cpu = "alderlake";
    tuning = {
      profile = "bulk";
      cpu = {
        cores = fast ++ slow;
        irqCpus = map lib.head fast;
        # The slow cores are for everything else.
        serviceCpus = lib.concatLists fast;
      };
      nic.ten = {
        driver = "ixgbe";
        queues = 6;
      };
    };
  };
}
