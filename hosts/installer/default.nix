# A medium that installs a host onto the disk of the machine it boots on, unattended; install.sh beside this says how.
#
#   nix build .#tengbe-installer && dd if=result/nixos.img of=/dev/STICK bs=4M conv=fsync
#
# Then write your public key into `authorized_keys` on the stick's EFI partition, boot from it, and wait until the
# machine is off.
{
  # The label of the medium's root: not that of what it installs, which may be on the disk already.
  label,
  # The host that is installed, evaluated.
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
      # nixos-install takes it from there.
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
    # What may not be on the box is not on its medium either.
    inherit (target.config.system) forbiddenDependenciesRegexes;
  };
  networking = {
    hostName = "${target.config.networking.hostName}-installer";
    # It carries all that it installs, and talks to nobody.
    useDHCP = false;
    resolvconf.enable = false;
    # As the hosts have it.
    nftables.enable = true;
  };

  # The cards and disks of the target.
  boot = {
    inherit (target.config.boot) kernelPackages;
    initrd = {
      inherit (target.config.boot.initrd) availableKernelModules;
      systemd.enable = true;
    };
    loader.systemd-boot.enable = true;
    loader.timeout = 1;
    kernelParams = [
      "console=tty0"
      # The EFI partition is mounted where install.sh reads it, and not at /boot as well (systemd-gpt-auto-generator(8)).
      "systemd.gpt_auto=no"
    ];
  };
  fileSystems."/" = {
    device = "/dev/disk/by-label/${label}";
    fsType = "ext4";
  };

  users.allowNoPasswordLogin = true;
  # Whoever stands in front of it sees why, where it fails.
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
