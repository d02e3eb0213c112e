# Disks to boot a host from.
{ lib }:
let
  layout = lib.importJSON ../modules/appliance/disk-layout.json;
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
        inherit (layout) espLabel espMiB;
        nativeBuildInputs = with pkgs.buildPackages; [
          dosfstools
          e2fsprogs
          fakeroot
          mtools
          nix
          sqlite
          util-linux
        ];
        # FAT starts in 1980.
        SOURCE_DATE_EPOCH = 315619200;
      }
      ''
        fakeroot bash ${./image.sh}
      '';
in
{
  # For a host; the root grows when it boots.
  inherit disk;

  # The hosts as images of linerate.appliance.image. NAME-appliance is a disk, and NAME-update is the directory that a
  # static server serves. NAME-sign makes both from NAME-payload and keys. NAME-sbom lists their content. The default
  # version is the date of the sources.
  appliances =
    { hosts, date }:
    lib.concatMapAttrs (
      name: host:
      let
        inherit
          (host.extendModules {
            modules = [
              {
                linerate.appliance.image = {
                  enable = true;
                  version = lib.mkDefault "${lib.substring 0 8 date}.${lib.substring 8 6 date}";
                };
              }
            ];
          })
          config
          pkgs
          ;
        inherit (config.system.build) linerateImage;
      in
      {
        "${name}-appliance" = linerateImage.disk // {
          inherit config;
        };
        "${name}-update" =
          pkgs.runCommandLocal "${name}-update" { }
            "ln -s ${linerateImage.disk}/update $out";
        "${name}-payload" = linerateImage.payload;
        "${name}-sbom" = linerateImage.sbom;
        "${name}-sign" = linerateImage.sign;
      }
    ) hosts;

  # For a stick that installs the host onto the machine's own disk.
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
    # Also exposes the configuration of the medium's system.
    disk medium // { inherit (medium) config; };
}
