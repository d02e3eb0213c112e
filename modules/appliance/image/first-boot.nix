# What a disk gets at its first boot, and whenever it has become larger: the second slot, and /var with the rest.
# systemd-repart adds and grows partitions, and never removes any.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.linerate.appliance.image;
  names = import ./names.nix { inherit pkgs; };
  mib = number: "${toString number}M";
  fixed = number: {
    SizeMinBytes = mib number;
    SizeMaxBytes = mib number;
  };
  slot = kind: size: fixed size // { Type = names.types.${kind}; };
  inherit (config.boot.initrd.systemd) package;
  script = pkgs.writeShellScript "first-boot" (lib.readFile ./first-boot.sh);
in
{
  options.linerate.appliance.image.partitions = lib.mkOption {
    internal = true;
    type = lib.types.attrsOf (lib.types.attrsOf lib.types.str);
    description = "Definitions for systemd-repart, in the order of the disk.";
  };

  config = lib.mkIf cfg.enable {
    linerate.appliance.image.partitions = {
      "10-esp" = fixed cfg.espMiB // {
        Type = "esp";
        Label = names.esp;
      };
      "20-verity-a" = slot "verity" (names.verityMiB cfg.storeMiB);
      "21-store-a" = slot "store" cfg.storeMiB;
      "30-verity-b" = slot "verity" (names.verityMiB cfg.storeMiB) // {
        Label = names.empty;
      };
      "31-store-b" = slot "store" cfg.storeMiB // {
        Label = names.empty;
      };
      "40-var" = {
        Type = "var";
        Label = names.var.label;
        Format = "ext4";
        SizeMinBytes = "256M";
        # Journal and state, if a disk has more than it will ever need.
        Weight = "1000";
      };
    };

    systemd.repart.partitions = cfg.partitions;
    boot.initrd.systemd = {
      repart.enable = true;
      storePaths = [ script ];
      extraBin."mkfs.ext4" = "${pkgs.e2fsprogs}/bin/mkfs.ext4";
      contents."/etc/mke2fs.conf".source = "${pkgs.e2fsprogs}/etc/mke2fs.conf";
      services.systemd-repart = {
        # The disk is the one with the open store, since others may have partitions with these names.
        requires = [ "systemd-veritysetup@usr.service" ];
        after = lib.mkForce [ "systemd-veritysetup@usr.service" ];
        before = [ "sysroot-var.mount" ];
        # It ends before the system starts (systemd-repart.service), and would stop /var too if /var required it.
        wantedBy = [ "sysroot-var.mount" ];
        serviceConfig.ExecStart = lib.mkForce [
          ""
          "${script} ${package}/bin/systemd-repart ${names.var.label}"
        ];
      };
    };
  };
}
