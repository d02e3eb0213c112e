# A machine's own disk: what is mounted from where. image.sh and install.sh in hosts/ make disks from the same
# disk-layout.json. A host of your own that was installed this way imports this as nixosModules.disk.
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
    # Nobody else may read the loader's random seed.
    options = [ "umask=0077" ];
  };
}
