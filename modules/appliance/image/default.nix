# The box as an image: a store that nobody can write to, with each block checked when it is read (dm-verity). It is in
# one of two slots on the disk, and an update fills the other one. A single file boots, and contains the hash of its
# store. README.md in the parent directory says how the parts fit together.
{
  config,
  lib,
  pkgs,
  utils,
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

  # Whether the initrd waits for a disk before it mounts this.
  waits =
    mount:
    !lib.elem (mount.fsType or "auto") [
      "overlay"
      "ramfs"
      "tmpfs"
    ]
    &&
      lib.intersectLists [
        "bind"
        "nofail"
        "rbind"
      ] (mount.options or [ ]) == [ ];
  # What the host has for its other form, and the initrd would wait for: these mounts are not on an image's disk.
  foreign = map (mount: mount.mountPoint) (
    lib.filter (
      mount:
      utils.fsNeededForBoot mount
      && waits mount
      && !lib.elem mount.mountPoint [
        "/"
        "/nix/store"
        "/var"
      ]
    ) (lib.attrValues config.fileSystems)
  );
  locked = lib.subtractLists (lib.optional cfg.var.encrypt names.var.label) (
    lib.attrNames config.boot.initrd.luks.devices
  );
in
{
  imports = [
    ./build.nix
    ./ec2.nix
    ./first-boot.nix
    ./provenance.nix
    ./sealed.nix
    ./update.nix
    ./var.nix
  ];

  options.linerate.appliance.image = {
    enable = mkEnableOption ''
      the host's form as a read-only image. It has no Nix and no compiler, nothing is installed on it, and nothing
      drifts. An update replaces all of it; `nixos-rebuild` is for the other form
    '';

    id = mkOption {
      # As in os-release(5), and for names of files that are matched by patterns.
      type = types.strMatching "[a-z0-9][a-z0-9-]{0,31}";
      default = config.networking.hostName;
      defaultText = lib.literalExpression "config.networking.hostName";
      description = "The start of the image's file names. Boxes that get the same updates have the same id.";
    };

    version = mkOption {
      type = types.nullOr (types.strMatching "[0-9]+([.][0-9]+)*");
      default = null;
      example = "2026.11.23";
      description = ''
        The image's version: numbers and dots, higher than all earlier versions. It has no default, since boxes cannot
        tell two images of the same version apart.
      '';
    };

    storeMiB = mkOption {
      type = types.ints.between 64 65536;
      default = 768;
      description = ''
        The size of each of the two slots for the store, in MiB. Updates cannot change it, so leave room for larger
        stores. If the store does not fit, the build fails.
      '';
    };

    espMiB = mkOption {
      type = types.ints.between 128 4096;
      default = 512;
      description = ''
        The size of the EFI system partition, in MiB. It holds the kernels and initrds of two versions, a third one
        while that is written, and the boot loader.
      '';
    };

    secureBoot = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the box must run with Secure Boot, from files signed with `db.key` (see `NAME-sign`). `linerate doctor`
        then warns if the firmware does not demand signatures.
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
        How the store is compressed: algorithm and level. zstd saves some 10 %, but takes several times as long to
        unpack a block when it is first read. Blocks that were read stay in memory, unpacked.
      '';
    };
  };

  config = lib.mkMerge [
    {
      # Hosts that are not images have this output too, and it fails with a clear error.
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
        {
          assertion = foreign == [ ];
          message = "fileSystems: an image would wait in its initrd for ${toString foreign}; give them to the host's other form alone (lib.mkIf (!config.linerate.appliance.image.enable)), or mount another disk elsewhere, without neededForBoot.";
        }
        {
          assertion = locked == [ ];
          message = "boot.initrd.luks.devices: an image would wait in its initrd for ${toString locked}; give them to the host's other form alone (lib.mkIf (!config.linerate.appliance.image.enable)). linerate.appliance.image.var.encrypt encrypts an image's own /var.";
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
        # A store whose first block is not as signed looks to systemd like a disk that is being formatted, so its boot
        # would fail only after a minute and a half (systemd's rules of udev, CRYPT-*). Nothing formats this device.
        initrd.services.udev.rules = ''
          ENV{DM_UUID}=="CRYPT-VERITY-*", ENV{ID_FS_USAGE}=="", ENV{ID_FS_USAGE}="filesystem"
        '';
        initrd.availableKernelModules = [
          "erofs"
          "ext4"
          "overlay"
        ];
      };

      # Replaces these mounts of the host's other form. Its others stay, and none of them may be needed for the boot.
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
            # Wait long for this partition: without it, no boot counts as good and no version is written.
            "x-systemd.device-timeout=10min"
          ];
        };
      };
      swapDevices = mkForce [ ];

      # The image can't be changed in place, so it contains no tools for that.
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
