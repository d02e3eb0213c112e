# Additions to a host because its programs are Debian's: they look for their files below /usr, where NixOS has nothing.
# This is the only module that tests/nixos adds to a host.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  systemd = config.systemd.package;
  initrd = config.boot.initrd.systemd.contents;
  # If a host has an encrypted disk and a TPM for it, systemd opens more libraries by name, and libcryptsetup opens
  # systemd's plugin. The loader looks for them in this directory.
  libraries = "/usr/lib/x86_64-linux-gnu";
  sealing = lib.optionalAttrs config.boot.initrd.systemd.tpm2.enable (
    {
      "${libraries}/cryptsetup" = "${systemd}/lib/cryptsetup";
      "${libraries}/libcryptsetup.so.12" = "${pkgs.libcryptsetup}/lib/libcryptsetup.so.12";
    }
    // lib.listToAttrs (
      map
        (
          part:
          lib.nameValuePair "${libraries}/libtss2-${part}.so.0" "${pkgs.tpm2-tss}/lib/libtss2-${part}.so.0"
        )
        [
          "esys"
          "mu"
          "rc"
          "tcti-device"
        ]
    )
  );
in
{
  # systemd opens these libraries by name. Without libkmod it can't load modules.
  boot.initrd.systemd.storePaths = lib.mkIf config.boot.initrd.systemd.enable (
    map (library: "${library}/lib") systemd.openedLibraries
  );
  # systemd runs its executor, its generators and udev's helpers from there.
  boot.initrd.systemd.contents = lib.mkIf config.boot.initrd.systemd.enable (
    {
      "/usr/lib/systemd".source = "${systemd}/lib/systemd";
      "/usr/lib/udev".source = "${systemd}/lib/udev";
      # Debian's kmod and systemd-modules-load know no other place.
      "/usr/lib/modules".source = "${initrd."/lib".source}/modules";
      # mount, fsck and others, for systemd's file system units.
      "/usr/bin".source = initrd."/bin".source;
    }
    // lib.mapAttrs (_: source: { inherit source; }) sealing
  );

  # Runs before systemd starts, in the initrd's last step.
  system.activationScripts.debianPaths = ''
    mkdir -p /usr/bin /usr/lib/systemd /usr/share /lib
    # Programs that systemd calls, for instance for mount units, and systemd's own programs.
    for program in ${pkgs.util-linux}/bin/{agetty,fsck,login,mount,sulogin,swapoff,swapon,umount} ${systemd}/bin/*; do
      ln -sfn "$program" /usr/bin/
    done
    [ -e /usr/sbin ] || ln -s bin /usr/sbin
    for entry in ${systemd}/lib/systemd/*; do
      [ "''${entry##*/}" = boot ] || ln -sfn "$entry" /usr/lib/systemd/
    done
    # bootctl does not follow links, so these files are copied.
    rm -rf /usr/lib/systemd/boot.new
    cp -r ${systemd}/lib/systemd/boot /usr/lib/systemd/boot.new
    rm -rf /usr/lib/systemd/boot
    mv /usr/lib/systemd/boot.new /usr/lib/systemd/boot
    ln -sfn ${systemd}/lib/udev /usr/lib/udev
    # The bus reads its configuration from there.
    ln -sfn /etc/dbus-1 /usr/share/dbus-1
    # Since OpenSSH 9.8, sshd runs a separate program for each session.
    ln -sfn ${pkgs.openssh}/lib/openssh /usr/lib/openssh
    # PAM modules that are named without a path, and the program that one of them asks for passwords' ages.
    ln -sfn ${pkgs.pam}/lib/security /usr/lib/security
    ln -sfn /run/wrappers/bin/unix_chkpwd /usr/bin/unix_chkpwd
    ${lib.concatStrings (
      lib.mapAttrsToList (path: source: "mkdir -p ${libraries}; ln -sfn ${source} ${path}\n") sealing
    )}
    # kmod looks for kernel modules here.
    for directory in /usr/lib /lib; do
      ln -sfn /run/booted-system/kernel-modules/lib/modules $directory/modules
    done
  '';
  # Debian's systemd-shutdown doesn't start from a file system in memory: the kernel panics at the end of every
  # shutdown.
  systemd.shutdownRamfs.enable = false;
  # Debian's PAM has no pam_lastlog.
  security.pam.services.login.updateWtmp = lib.mkForce false;
  # The directory that Debian's sshd uses as its processes' root.
  systemd.tmpfiles.rules = [ "d /run/sshd 0755 root root -" ];
}
