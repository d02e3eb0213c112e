# A small closure: what the services do not need is not there, and what must not be there ends the build.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkIf mkOption;
  cfg = config.linerate.appliance;
in
{
  options.linerate.appliance.forbidden = mkOption {
    type = lib.types.listOf lib.types.str;
    default = [
      # Interpreters and compilers are tools for whoever breaks in. systemd-boot's installer is written in Python.
      "-perl-[0-9]"
      "-ruby-[0-9]"
      "-nodejs-[0-9]"
      "-(gcc|clang|rustc|cargo|go)(-wrapper)?-[0-9.]+$"
      "-(linux-firmware|manual|man-pages)-"
    ];
    description = "Extended regular expressions; a path in the system's closure that one of them matches ends the build.";
  };

  config = mkIf cfg.enable {
    system.forbiddenDependenciesRegexes = cfg.forbidden;

    # Without perl: /etc is an overlay and users are made by a program, where NixOS had scripts.
    boot.initrd.systemd.enable = mkDefault true;
    system.etc.overlay.enable = mkDefault true;
    services.userborn.enable = mkDefault true;
    # The installer's tools, of which a box that updates itself needs one.
    system.disableInstallerTools = mkDefault true;
    environment.systemPackages = lib.optional (
      cfg.update.flake != null
    ) config.system.build.nixos-rebuild;

    # Nobody reads manuals on the box.
    documentation.enable = mkDefault false;
    documentation.doc.enable = mkDefault false;
    documentation.info.enable = mkDefault false;
    documentation.man.enable = mkDefault false;
    documentation.nixos.enable = mkDefault false;
    environment.defaultPackages = mkDefault [ ];
    environment.stub-ld.enable = mkDefault false;
    fonts.fontconfig.enable = mkDefault false;
    programs.command-not-found.enable = mkDefault false;
    programs.less.lessopen = mkDefault null;
    boot.enableContainers = mkDefault false;
    boot.loader.grub.enable = mkDefault false;
    services.udisks2.enable = mkDefault false;
    services.logrotate.enable = mkDefault false;
    security.polkit.enable = mkDefault false;
    xdg = {
      autostart.enable = mkDefault false;
      icons.enable = mkDefault false;
      mime.enable = mkDefault false;
      sounds.enable = mkDefault false;
    };
    # A host names the firmware that its cards need.
    hardware.enableRedistributableFirmware = mkDefault false;
    # One locale.
    i18n.supportedLocales = mkDefault [ "C.UTF-8/UTF-8" ];
    i18n.defaultLocale = mkDefault "C.UTF-8";
  };
}
