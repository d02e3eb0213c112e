# A machine's own disk: what is mounted from where. image.sh and install.sh of hosts/ make disks by the same
# disk-layout.json. A host of yours that was installed in this way imports this as nixosModules.disk.
let
  layout = builtins.fromJSON (builtins.readFile ./disk-layout.json);
in
{
  fileSystems."/" = {
    device = "/dev/disk/by-label/${layout.rootLabel}";
    fsType = "ext4";
    autoResize = true;
  };
  fileSystems."/boot" = {
    device = "/dev/disk/by-label/${layout.espLabel}";
    fsType = "vfat";
    # The loader's random seed is nobody else's business.
    options = [ "umask=0077" ];
  };
}
