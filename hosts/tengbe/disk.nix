# What is mounted from where, as the image and the installer make the disk.
{
  fileSystems."/" = {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
    autoResize = true;
  };
  fileSystems."/boot" = {
    device = "/dev/disk/by-label/ESP";
    fsType = "vfat";
    # The loader's random seed is nobody else's business.
    options = [ "umask=0077" ];
  };
}
