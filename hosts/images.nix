# Disks to boot a host from.
{ lib }:
let
  disk =
    { config, pkgs, ... }:
    let
      inherit (config.system.build) toplevel;
    in
    pkgs.runCommand "${config.networking.hostName}-image"
      {
        inherit toplevel;
        closure = pkgs.closureInfo { rootPaths = [ toplevel ]; };
        bootPartition = lib.getExe (import ./boot-partition.nix { inherit lib config pkgs; });
        label = lib.removePrefix "/dev/disk/by-label/" config.fileSystems."/".device;
        # A kernel and an initrd for each generation that the loader shows.
        espMiB = 512;
        nativeBuildInputs = with pkgs.buildPackages; [
          dosfstools
          e2fsprogs
          fakeroot
          mtools
          nix
          sqlite
          util-linux
        ];
        # FAT begins with 1980.
        SOURCE_DATE_EPOCH = 315619200;
      }
      ''
        fakeroot bash ${./image.sh}
      '';
in
{
  # Of a host; the root grows when it boots.
  inherit disk;

  # For a stick that puts the host onto the machine's own disk.
  installer =
    target:
    let
      medium = lib.nixosSystem {
        modules = [
          (import ./installer {
            label = "installer";
            inherit target;
          })
        ];
      };
    in
    # With what its system is made of, for whoever asks for that.
    disk medium // { inherit (medium) config; };
}
