# Writes a host's EFI system partition, with boot-partition.sh.
{
  lib,
  config,
  pkgs,
  ...
}:
let
  loader = config.boot.loader;
  inherit (pkgs.stdenv.hostPlatform) efiArch;
in
assert lib.assertMsg loader.systemd-boot.enable
  "${config.networking.hostName} is to boot by systemd-boot: set boot.loader.systemd-boot.enable";
# NixOS appends these secrets to the initrd with its own program, which only runs on a system that has booted.
assert lib.assertMsg (config.boot.initrd.secrets == { })
  "${config.networking.hostName} has boot.initrd.secrets, which no image and no installer can have in it";
pkgs.writeShellApplication {
  name = "linerate-boot-partition";
  runtimeInputs = [
    pkgs.coreutils
    pkgs.jq
  ];
  text =
    lib.toShellVars {
      inherit (config.system.build) toplevel;
      loader = "${config.systemd.package}/lib/systemd/boot/efi/systemd-boot${efiArch}.efi";
      inherit efiArch;
      loaderConf = lib.concatStringsSep "\n" (
        [ "timeout ${if loader.timeout == null then "menu-force" else toString loader.timeout}" ]
        ++ lib.optional (!loader.systemd-boot.editor) "editor 0"
        ++ [ "console-mode ${loader.systemd-boot.consoleMode}" ]
      );
      # For an appliance, on releases where NixOS doesn't count boots itself.
      trial = config.system.build.trial or "";
      tries = config.linerate.appliance.update.tries or 0;
    }
    + "\n"
    + lib.readFile ./boot-partition.sh;
}
