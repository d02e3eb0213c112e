# Disks to boot a host from.
{ lib }:
let
  disk =
    { config, pkgs, ... }:
    let
      inherit (config.system.build) toplevel;
      loader = config.boot.loader;
      inherit (pkgs.stdenv.hostPlatform) efiArch;
    in
    assert lib.assertMsg loader.systemd-boot.enable
      "the image of ${config.networking.hostName} boots by systemd-boot: set boot.loader.systemd-boot.enable";
    pkgs.runCommand "${config.networking.hostName}-image"
      {
        inherit toplevel;
        closure = pkgs.closureInfo { rootPaths = [ toplevel ]; };
        loader = "${config.systemd.package}/lib/systemd/boot/efi/systemd-boot${efiArch}.efi";
        inherit efiArch;
        loaderConf = lib.concatStringsSep "\n" (
          [ "timeout ${if loader.timeout == null then "menu-force" else toString loader.timeout}" ]
          ++ lib.optional (!loader.systemd-boot.editor) "editor 0"
          ++ [ "console-mode ${loader.systemd-boot.consoleMode}" ]
        );
        label = lib.removePrefix "/dev/disk/by-label/" config.fileSystems."/".device;
        # A kernel and an initrd for each generation that the loader shows.
        espMiB = 512;
        # Of an appliance, where NixOS does not count by itself.
        trial = config.system.build.trial or "";
        tries = config.linerate.appliance.update.tries or 0;
        nativeBuildInputs = with pkgs.buildPackages; [
          dosfstools
          e2fsprogs
          fakeroot
          jq
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
