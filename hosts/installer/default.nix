# A medium that installs a host, unattended, onto the disk of the machine it boots on; see install.sh beside this.
#
#   nix build .#tengbe-installer && dd if=result/nixos.img of=/dev/STICK bs=4M conv=fsync
#
# Then write your public key into `authorized_keys` on the stick's EFI partition, boot from it, and wait until the
# machine is off.
{
  # The label of the medium's root. It differs from the label of what it installs, which may be on the disk already.
  label,
  # The host to install, evaluated.
  target,
}:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  choose = pkgs.writeShellApplication {
    name = "linerate-choose";
    runtimeInputs = [
      pkgs.coreutils
      pkgs.util-linux
    ];
    text = lib.readFile ./choose.sh;
  };
  install = pkgs.writeShellApplication {
    name = "linerate-install";
    runtimeInputs = [
      choose
      (import ../boot-partition.nix {
        inherit lib;
        inherit (target) config pkgs;
      })
      # nixos-install finds Nix in its PATH.
      config.nix.package
      config.systemd.package
      config.system.build.nixos-install
      pkgs.coreutils
      pkgs.dosfstools
      pkgs.e2fsprogs
      pkgs.gawk
      pkgs.util-linux
    ];
    text =
      lib.toShellVars (lib.importJSON ../../modules/appliance/disk-layout.json)
      + "\n"
      + lib.readFile ./install.sh;
  };
in
{
  imports = [ ../../modules/appliance/small.nix ];

  nixpkgs.hostPlatform = "x86_64-linux";
  system = {
    stateVersion = "26.05";
    # The medium must not contain what is forbidden on the box either.
    inherit (target.config.system) forbiddenDependenciesRegexes;
  };
  networking = {
    hostName = "${target.config.networking.hostName}-installer";
    # The medium contains everything that it installs, and needs no network.
    useDHCP = false;
    resolvconf.enable = false;
    # As on the hosts.
    nftables.enable = true;
  };

  # For the cards and disks of the target.
  boot = {
    inherit (target.config.boot) kernelPackages;
    initrd = {
      # And for the stick that it is on itself, which the target's disks say nothing of.
      availableKernelModules = target.config.boot.initrd.availableKernelModules ++ [
        "sd_mod"
        "uas"
        "usb_storage"
        "xhci_pci"
      ];
      systemd.enable = true;
    };
    loader.systemd-boot.enable = true;
    loader.timeout = 1;
    kernelParams = [
      "console=tty0"
      # The EFI partition is mounted where install.sh reads it, and not also at /boot (systemd-gpt-auto-generator(8)).
      "systemd.gpt_auto=no"
    ];
  };
  fileSystems."/" = {
    device = "/dev/disk/by-label/${label}";
    fsType = "ext4";
  };

  users.allowNoPasswordLogin = true;
  # If it fails, whoever stands in front of it can see why.
  services.getty.autologinUser = "root";

  systemd.services.linerate-install = {
    description = "Install ${target.config.networking.hostName}";
    wantedBy = [ "multi-user.target" ];
    environment.HOME = "/root";
    serviceConfig = {
      Type = "oneshot";
      ExecStart = "${lib.getExe install} ${target.config.system.build.toplevel}";
      StandardOutput = "journal+console";
      StandardError = "journal+console";
    };
  };
}
