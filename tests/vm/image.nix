# The disk of `nix build .#tengbe-image`, with the driver's shell in it.
{
  hostPkgs,
  lib,
  metal,
  rawImage,
  ...
}:
{
  nodes.box = {
    imports = [ metal ];
    virtualisation = {
      # The machine boots from its own disk only, and mounts what the host declares.
      directBoot.enable = false;
      mountHostNixStore = false;
      useEFIBoot = true;
      useDefaultFilesystems = false;
      # The host's own.
      fileSystems = lib.mkForce (import ../../modules/appliance/disk.nix).fileSystems;
    };
  };

  testScript =
    { nodes, ... }:
    ''
      import os
      import subprocess

      # The image, on a disk larger than the image itself.
      disk = os.path.abspath("box.qcow2")
      subprocess.run(
          ["${lib.getExe' hostPkgs.qemu "qemu-img"}", "create", "-q", "-f", "qcow2", "-F", "raw"]
          + ["-b", "${
            rawImage {
              config = nodes.box;
              pkgs = hostPkgs;
            }
          }/nixos.img", disk, "12G"],
          check=True,
      )
      os.environ["NIX_DISK_IMAGE"] = disk

    ''
    + builtins.readFile ./image.py;
}
