# A machine's own disk: what is mounted from where, by the labels that image.sh and install.sh of hosts/ give. A host of
# yours that was installed in this way imports it as nixosModules.disk.
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
