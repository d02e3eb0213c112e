# EC2: NixOS's units keep what EC2 tells about the instance in /etc, and write root's key and the host's into /root and
# /etc/ssh. On an image, none of these can be written.
{
  config,
  lib,
  options,
  ...
}:
{
  # The option comes with NixOS's module for EC2, and so do the units.
  config = lib.optionalAttrs (options ? virtualisation.amazon-init) (
    lib.mkIf config.linerate.appliance.image.enable {
      # Its udev rules name volumes as EC2 does, by a program in Python, which an image does not have.
      nixpkgs.overlays = [
        (final: _: { amazon-ec2-utils = final.runCommandLocal "no-names-of-volumes" { } "mkdir $out"; })
      ];
      environment.etc."ec2-metadata" = {
        source = "/run/ec2-metadata";
        mode = "direct-symlink";
      };
      systemd.services = {
        fetch-ec2-metadata.serviceConfig = {
          RuntimeDirectory = "ec2-metadata";
          # It is read when the unit has ended.
          RuntimeDirectoryPreserve = true;
        };
        # The host's key is there, and /etc/ssh only has links to it.
        apply-ec2-data.serviceConfig.BindPaths = [ "/var/lib/ssh:/etc/ssh" ];
      };
      # The instance's key comes anew at each boot.
      fileSystems."/root" = {
        device = "none";
        fsType = "tmpfs";
        options = [
          "mode=0700"
          "nodev"
          "noexec"
          "nosuid"
          "size=1M"
        ];
      };
    }
  );
}
