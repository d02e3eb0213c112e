# A NixOS with what it is told to run and little else: no perl, no manuals, nothing for desktops. Appliances use it, and
# so does the medium that installs one (hosts/installer).
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkIf;
  # Logs that are rotated: by default NixOS's own, which hold logins, and which nothing here writes much to.
  rotated = lib.attrNames (
    lib.filterAttrs (_: log: log.enable) (
      removeAttrs config.services.logrotate.settings [
        "header"
        "/var/log/btmp"
        "/var/log/wtmp"
      ]
    )
  );
in
{
  # Without perl: /etc is an overlay, and a program makes users, both of which NixOS otherwise does with scripts.
  boot.initrd.systemd.enable = mkDefault true;
  system.etc.overlay.enable = mkDefault true;
  services.userborn.enable = mkDefault true;
  # nixos-install and similar tools.
  system.disableInstallerTools = mkDefault true;

  # NixOS keeps the sources that a flake built it from, 160 MiB, as the box's `nixpkgs#NAME` and `<nixpkgs>`. An update
  # names its sources itself, in its flake.lock.
  nixpkgs.flake.setNixPath = mkDefault false;
  nixpkgs.flake.setFlakeRegistry = mkDefault false;

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
  # With nothing else to rotate. What a host's other services write to, such as nginx, would grow for ever.
  services.logrotate.enable = mkIf (rotated == [ ]) (mkDefault false);
  security.polkit.enable = mkDefault false;
  xdg = {
    autostart.enable = mkDefault false;
    icons.enable = mkDefault false;
    mime.enable = mkDefault false;
    sounds.enable = mkDefault false;
  };
  # A single locale.
  i18n.supportedLocales = mkDefault [ "C.UTF-8/UTF-8" ];
  i18n.defaultLocale = mkDefault "C.UTF-8";
}
