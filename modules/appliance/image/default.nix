# The box as an image: a store that nobody can write to, with each block checked when it is read (dm-verity). It is in
# one of two slots on the disk, and an update fills the other one. A single file boots, and contains the hash of its
# store. README.md in the parent directory says how the parts fit together.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    mkDefault
    mkEnableOption
    mkForce
    mkIf
    mkOption
    types
    ;
  cfg = config.linerate.appliance.image;
  names = import ./names.nix { inherit pkgs; };
in
{
  imports = [
    ./build.nix
    ./first-boot.nix
    ./provenance.nix
    ./sealed.nix
    ./update.nix
    ./var.nix
  ];

  options.linerate.appliance.image = {
    enable = mkEnableOption ''
      the form of the host that is an image: nothing is installed on it and nothing drifts. It has no Nix and no compiler;
      an update replaces the whole of it, and `nixos-rebuild` is for the other form
    '';

    id = mkOption {
      # As in os-release(5), and for names of files that are matched by patterns.
      type = types.strMatching "[a-z0-9][a-z0-9-]{0,31}";
      default = config.networking.hostName;
      defaultText = lib.literalExpression "config.networking.hostName";
      description = "What its files are called by: those of one box and of all that are updated with it.";
    };

    version = mkOption {
      type = types.nullOr (types.strMatching "[0-9]+([.][0-9]+)*");
      default = null;
      example = "2026.11.23";
      description = ''
        Which version this is: numbers and dots, each version higher than those before. It has no default, since two
        images of one version are one to those who update.
      '';
    };

    storeMiB = mkOption {
      type = types.ints.between 64 65536;
      default = 768;
      description = ''
        How large each of the two slots for the store is, in MiB. It stays as it is for as long as the disk is not written
        anew, so leave room to grow in; a store that does not fit ends the build.
      '';
    };

    espMiB = mkOption {
      type = types.ints.between 128 4096;
      default = 512;
      description = ''
        How large the EFI system partition is, in MiB: two versions' kernels and initrds, a third while it is written,
        and the boot loader.
      '';
    };

    secureBoot = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the box has to run with Secure Boot, its files being signed with `db.key` (see `NAME-sign`):
        `linerate doctor` warns where the firmware does not ask for signatures.
      '';
    };

    compression = mkOption {
      type = types.enum [
        "lz4hc,9"
        "zstd,3"
        "zstd,8"
        "none"
      ];
      default = "lz4hc,9";
      description = ''
        How the store is compressed: algorithm and level. zstd is some 10 % smaller, and a block of it takes several times as
        long to unpack when it is read for the first time; what has been read stays in memory unpacked.
      '';
    };
  };

  config = lib.mkMerge [
    {
      # Every host is asked whether it has such an image.
      system.build.linerateImage = mkIf (!cfg.enable) (
        throw "linerate.appliance.image.enable is not set for ${config.networking.hostName}"
      );
    }
    (mkIf cfg.enable {
      assertions = [
        {
          assertion = config.linerate.appliance.enable;
          message = "linerate.appliance.image.enable: set linerate.appliance.enable too; an image is a form of it.";
        }
        {
          assertion = cfg.version != null;
          message = "linerate.appliance.image.version: say which version this is, such as \"1\"; each has to be higher than those before.";
        }
        {
          # The longest label of a slot, and GPT's limit.
          assertion = cfg.version != null -> lib.stringLength (names.label "verity" cfg.version) <= 36;
          message = "linerate.appliance.image.version: ${toString cfg.version} is too long for the name of a partition.";
        }
        {
          assertion = config.linerate.appliance.update.flake == null;
          message = "linerate.appliance.update.flake: an image has no Nix to build with; set linerate.appliance.image.update.source.";
        }
      ];

      system.image = {
        inherit (cfg) id version;
      };

      boot = {
        # systemd-boot finds each version as a separate file, and writes nothing.
        loader.grub.enable = false;
        loader.systemd-boot.enable = mkForce false;
        loader.efi.canTouchEfiVariables = mkForce false;
        growPartition = mkForce false;
        kernelParams = [
          # The hash of the store, usrhash=, would otherwise also mount it at /usr.
          "mount.usr=fstab"
          # What is mounted is declared below, and doesn't depend on partition types.
          "systemd.gpt_auto=0"
          # A power cut while the partition table is written damages its first copy: the kernel reads the second copy if
          # it is told that this is GPT.
          "gpt"
        ];
        initrd.systemd.enable = true;
        initrd.systemd.dmVerity.enable = true;
        initrd.availableKernelModules = [
          "erofs"
          "ext4"
          "overlay"
        ];
      };

      # All mounts, whatever the host's other form has.
      fileSystems = {
        "/" = mkForce {
          device = "none";
          fsType = "tmpfs";
          options = [
            "mode=0755"
            "nodev"
            "size=16M"
          ];
        };
        "/nix/store" = mkForce {
          device = "/dev/mapper/usr";
          fsType = "erofs";
          options = [
            "ro"
            "nodev"
            "nosuid"
          ];
        };
        "/var" = mkForce {
          device = if cfg.var.encrypt then names.var.opened else names.var.device;
          fsType = "ext4";
          neededForBoot = true;
          autoResize = true;
          options = [
            "nodev"
            "nosuid"
          ];
        };
        "/boot" = mkForce {
          device = "${names.partitions}/${names.esp}";
          fsType = "vfat";
          # Nobody else may read the loader's random seed.
          options = [
            "nodev"
            "noexec"
            "nosuid"
            "umask=0077"
            # Without it, no boot counts as good and no version is written.
            "x-systemd.device-timeout=10min"
          ];
        };
      };
      swapDevices = mkForce [ ];

      # No tools for changing it, and nothing that they would need.
      nix.enable = false;
      system.switch.enable = false;
      system.etc.overlay.enable = true;
      system.etc.overlay.mutable = false;
      users.mutableUsers = mkForce false;
      linerate.appliance.forbidden = [
        "-python3-"
        "-nix-[0-9]"
      ];
      security.sudo.enable = mkDefault false;
      programs.nano.enable = mkDefault false;
      environment.systemPackages = [ config.systemd.package ];
    })
  ];
}
