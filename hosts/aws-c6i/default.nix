# Amazon EC2, c6i.4xlarge: Ice Lake, 8 cores with two threads each, 32 GiB, ENA. ../README.md says how its image becomes
# an AMI.
{ lib, modulesPath, ... }:
let
  # CPU 8 shares its core with CPU 0.
  cores = lib.genList (core: [
    core
    (core + 8)
  ]) 8;
in
{
  imports = [
    ../common.nix
    (modulesPath + "/virtualisation/amazon-image.nix")
  ];

  networking.hostName = "linerate-aws";

  # systemd-boot counts the boots of a new generation; grub doesn't.
  ec2.efi = true;
  boot.loader.grub.enable = false;
  boot.loader.systemd-boot.enable = true;

  # Wait for a slow volume: after the default of 30 seconds, ext4 would become read-only (Amazon EBS User Guide, NVMe
  # I/O operation timeout).
  boot.kernelParams = [ "nvme_core.io_timeout=4294967295" ];

  # User data must not start a nixos-rebuild, and nobody needs access other than by ssh.
  virtualisation.amazon-init.enable = false;
  services.amazon-ssm-agent.enable = lib.mkForce false;

  linerate = {
    cpu = "icelake-server";
    # The instance's baseline bandwidth. It can burst to up to twice that for a limited time (Amazon EC2, compute
    # optimized instances, network specifications).
    profile.nic.ena.sustained_mbit = 6250;
    appliance.userData = true;
    tuning = {
      memoryMiB = 32 * 1024;
      cpu = {
        virtual = true;
        inherit cores;
        # One queue per core; the sibling thread stays free for the worker.
        irqCpus = map lib.head cores;
      };
      nic.ena = {
        driver = "ena";
        queues = 8;
      };
    };
  };
}
