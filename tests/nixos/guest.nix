# What a host has in addition as a guest of tests/portable: QEMU's disk and card, an address, and the driver's shell.
{ lib, pkgs, ... }:
{
  boot.initrd.availableKernelModules = [
    "nvme"
    "virtio_blk"
    "virtio_pci"
  ];
  # The last step of the initrd, which the tests' driver waits for.
  system.activationScripts.begins = "echo the system begins >/dev/console";

  # Nobody looks at the menu.
  boot.loader.timeout = lib.mkForce 0;

  networking.hostName = lib.mkForce "box";
  networking.hosts."192.168.1.2" = [ "visitor" ];
  # As machine 1 of a test, on its first card.
  systemd.network.networks."05-test" = {
    matchConfig.PermanentMACAddress = "52:54:00:00:01:01";
    networkConfig = {
      Address = "192.168.1.1/24";
      LinkLocalAddressing = "no";
      IPv6AcceptRA = false;
    };
  };

  environment.systemPackages = with pkgs; [
    curl
    netcat
  ];

  # tests/portable/debian.py has the same for Debian: a virtio port, and not a terminal, which would echo and drop
  # bytes.
  systemd.services.test-shell = {
    description = "The driver's shell";
    wantedBy = [ "sysinit.target" ];
    before = [ "shutdown.target" ];
    conflicts = [ "shutdown.target" ];
    unitConfig.DefaultDependencies = false;
    environment = {
      HOME = "/root";
      USER = "root";
      PATH = lib.mkForce "/run/wrappers/bin:/run/current-system/sw/bin";
    };
    serviceConfig = {
      WorkingDirectory = "/root";
      KillSignal = "SIGHUP";
      OOMScoreAdjust = -1000;
      ExecStart = pkgs.writeShellScript "test-shell" ''
        modprobe virtio_console
        until for port in /sys/class/virtio-ports/*; do
            [[ -e $port/name && $(<"$port/name") == shell ]] && break
        done; do sleep 0.1; done
        device=/dev/''${port##*/}
        until [[ -e $device ]]; do sleep 0.1; done
        exec <>"$device" >&0 2>/dev/console
        echo shell is ready
        PS1= exec ${pkgs.bash}/bin/bash --norc --noprofile
      '';
    };
  };
}
