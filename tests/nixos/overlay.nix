# nixpkgs with the programs that our hosts run taken from Debian 13, build-only programs taken from the machine, and
# NixOS's own compiled with the machine's Rust toolchain. Everything else is nixpkgs unchanged: modules, scripts,
# generators, builders and hooks.
{
  # Debian's packages, as in debian.txt, and the directory of their files, as NAME_VERSION.deb.
  list,
  debs,
  # The directory of crates, as NAME-VERSION.crate.
  crates,
  # The Rust toolchain's directory, with bin/cargo and bin/rustc.
  rust,
}:
final: prev:
let
  # The names of attributes must not depend on them.
  inherit (prev) lib;
  debian = import ./debian.nix {
    inherit debs lib list;
    inherit (final) stdenvNoCC;
    shell = "${final.bash}/bin/bash";
  };
  inherit (debian)
    libraries
    loader
    package
    source
    whole
    ;

  # Packages that only need to be unpacked: Debian's, by nixpkgs' name.
  plain = lib.mapAttrs (name: packages: package name packages { }) {
    acl = [ "acl" ];
    attr = [ "attr" ];
    audit = [ "auditd" ];
    bash-completion = [ "bash-completion" ];
    bzip2 = [ "bzip2" ];
    chrony = [ "chrony" ];
    composefs = [ "composefs" ];
    coreutils = [ "coreutils" ];
    cpio = [ "cpio" ];
    cryptsetup = [ "cryptsetup-bin" ];
    curl = [ "curl" ];
    dbus-broker = [ "dbus-broker" ];
    diffutils = [ "diffutils" ];
    dnsutils = [
      "bind9-host"
      "bind9-dnsutils"
    ];
    dosfstools = [ "dosfstools" ];
    e2fsprogs = [
      "e2fsprogs"
      "logsave"
    ];
    erofs-utils = [ "erofs-utils" ];
    ethtool = [ "ethtool" ];
    file = [ "file" ];
    findutils = [ "findutils" ];
    fuse3 = [ "fuse3" ];
    # Without perl, which few of its commands need; Nix fetches with others.
    gitMinimal = [ "git" ];
    gnugrep = [ "grep" ];
    gnupatch = [ "patch" ];
    gnupg = [ "gpg" ];
    gnused = [ "sed" ];
    gnutar = [ "tar" ];
    gptfdisk = [ "gdisk" ];
    gzip = [ "gzip" ];
    iana-etc = [ "netbase" ];
    iptables = [ "iptables" ];
    iputils = [ "iputils-ping" ];
    irqbalance = [ "irqbalance" ];
    jq = [ "jq" ];
    kexec-tools = [ "kexec-tools" ];
    kmod = [ "kmod" ];
    less = [ "less" ];
    libcap = [ "libcap2-bin" ];
    mkpasswd = [ "whois" ];
    mtools = [ "mtools" ];
    nano = [ "nano" ];
    ncurses = [
      "ncurses-bin"
      "ncurses-base"
      "ncurses-term"
    ];
    nettools = [
      "net-tools"
      "hostname"
    ];
    nftables = [ "nftables" ];
    openssl = [ "openssl" ];
    parted = [ "parted" ];
    procps = [ "procps" ];
    psmisc = [ "psmisc" ];
    qemu-utils = [ "qemu-utils" ];
    rsync = [ "rsync" ];
    strace = [ "strace" ];
    sudo = [ "sudo" ];
    time = [ "time" ];
    tzdata = [ "tzdata" ];
    xauth = [ "xauth" ];
    xz = [ "xz-utils" ];
    zstd = [ "zstd" ];
  };

  # A program from the machine, only for builds. A closure that contains it fails the test, since its links lead
  # nowhere.
  ofMachine =
    name: programs:
    whole (
      final.runCommandLocal "${name}-of-the-machine" { } ''
        mkdir -p $out/bin
        for program in ${toString programs}; do ln -s "$(type -P "$program")" $out/bin/$program; done
      ''
    );

  # An empty package: modules name it, but our hosts don't need it, or Debian has no such package.
  nothing = name: whole (final.runCommandLocal name { } "mkdir -p $out/{bin,lib,share,etc}") { };

  # The kernel with its modules, and what NixOS asks of its configuration.
  linux =
    let
      image = lib.findFirst (lib.hasPrefix "linux-image-") null debian.names;
      modDirVersion = lib.removePrefix "linux-image-" image;
      version = debian.upstream image;
      built = final.stdenvNoCC.mkDerivation {
        pname = "linux";
        inherit version;
        buildCommand = ''
          dpkg-deb --fsys-tarfile ${source image} | tar -x
          mkdir -p $out/lib
          cp boot/vmlinuz-* $out/bzImage
          cp boot/config-* $out/config
          # The kernel's own build runs depmod. Debian's package leaves that to its installation.
          [ -e lib ] || ln -s usr/lib lib
          ${final.kmod}/bin/depmod -b $PWD ${modDirVersion}
          [ -s usr/lib/modules/${modDirVersion}/modules.dep.bin ]
          cp -r usr/lib/modules $out/lib/
        '';
      };
    in
    whole built {
      inherit modDirVersion version;
      configfile = "${built}/config";
      features = {
        efiBootStub = true;
        ia32Emulation = true;
      };
      # Debian's configuration has what NixOS's assertions look for, built in or as a module.
      config = {
        isDisabled = _: false;
        isEnabled = _: true;
        isModule = _: true;
        isNo = _: true;
        isSet = _: true;
        isYes = _: true;
      };
      kernelAtLeast = lib.versionAtLeast version;
      kernelOlder = lib.versionOlder version;
      isHardened = false;
      isLibre = false;
      isXen = false;
      isZen = false;
      meta.platforms = lib.platforms.linux;
    };

  # The machine's cargo, with a hook for the programs that it builds: they were linked against the machine's libraries,
  # and the hook makes them find Debian 13's in the store.
  toolchain =
    whole
      (final.runCommandLocal "rust-of-the-machine" { } ''
        mkdir -p $out/bin $out/nix-support
        ln -s ${rust}/bin/* $out/bin/
        substitute ${./relink.sh} $out/nix-support/setup-hook --subst-var-by loader ${loader} \
          --subst-var-by libraries ${
            lib.concatMapStringsSep ":" (name: "${libraries.${name}}/lib") [
              "libc6"
              "libdbus-1-3"
            ]
          }
      '')
      {
        version = "1.95";
        meta = {
          broken = false;
          platforms = lib.platforms.linux;
        };
        badTargetPlatforms = [ ];
        targetPlatforms = lib.platforms.linux;
      };
in
plain
// {
  # The C library and what comes with it.
  stdenv = prev.stdenv // {
    cc = prev.stdenv.cc // {
      libc = final.glibc;
    };
  };
  glibc = whole debian.glibc {
    bin = final.getent;
    getent = final.getent;
  };
  getent = package "libc-bin" [ "libc-bin" ] { };
  getconf = final.getent;
  libiconv = final.glibc;
  glibcLocales = whole (final.runCommandLocal "glibc-locales" { } ''
    mkdir -p $out/lib/locale
    dpkg-deb --fsys-tarfile ${source "libc-bin"} | tar -x ./usr/lib/locale
    cp -r usr/lib/locale/C.utf8 $out/lib/locale/
  '') { };
  glibcLocalesUtf8 = final.glibcLocales;

  # Shells.
  bash = package "bash" [ "bash" ] {
    interpreter = "/bin/sh";
    fix = "ln -s bash $out/bin/sh";
    attributes.shellPath = "/bin/bash";
  };
  bashInteractive = final.bash;
  dash = package "dash" [ "dash" ] { attributes.shellPath = "/bin/dash"; };
  runtimeShell = "${final.bash}/bin/bash";
  runtimeShellPackage = final.bash;

  # Other names for the same, and packages that lack a file that NixOS looks for.
  bind = final.dnsutils // {
    host = final.dnsutils;
  };
  amazon-ec2-utils = package "amazon-ec2-utils" [ "amazon-ec2-utils" ] {
    fix = ''
      sed -i '1s,/bin/bash,${final.bash}/bin/bash,' $out/lib/udev/ec2nvme-nsid
      sed -i '1s,/usr/bin/env python3,${final.python3}/bin/python3,' $out/bin/ebsnvme-id
      sed -i 's,$(curl ,$(${final.curl}/bin/curl ,' $out/bin/ec2-metadata
      # Debian's rules name ec2nvme-nsid by a path where the package does not install it.
      sed -i "s,/usr/sbin/ebsnvme-id,$out/bin/ebsnvme-id,; s,/usr/sbin/ec2nvme-nsid,$out/lib/udev/ec2nvme-nsid," \
        $out/lib/udev/rules.d/*
    '';
  };
  coreutils-full = final.coreutils;
  curlMinimal = final.curl;
  fuse = final.fuse3;
  gawk = package "gawk" [ "gawk" ] { fix = "ln -s gawk $out/bin/awk"; };
  host = final.dnsutils;
  iproute2 = package "iproute2" [ "iproute2" ] { fix = "mkdir -p $out/lib/iproute2"; };
  inetutils = final.nettools;
  kbd = package "kbd" [ "kbd" ] {
    fix = "mkdir -p $out/share/{keymaps,consolefonts,consoletrans,unimaps}";
    attributes.gzip = final.gzip;
  };
  kmod-blacklist-ubuntu =
    final.runCommandLocal "kmod-blacklist" { }
      "mkdir $out; touch $out/modprobe.conf";
  kmod-debian-aliases = final.writeText "kmod-debian-aliases.conf" "";
  netcat = package "netcat" [ "netcat-openbsd" ] { fix = "ln -s nc.openbsd $out/bin/nc"; };
  libressl = final.netcat // {
    nc = final.netcat;
  };
  openssh =
    package "openssh"
      [
        "openssh-server"
        "openssh-client"
        "openssh-sftp-server"
      ]
      {
        fix = "mkdir -p $out/libexec; ln -s $out/lib/openssh/* $out/libexec/";
        attributes.withKerberos = false;
      };
  prometheus-node-exporter = package "prometheus-node-exporter" [ "prometheus-node-exporter" ] {
    fix = "ln -s prometheus-node-exporter $out/bin/node_exporter";
  };
  nsncd = package "nsncd" [ "nsncd" ] { fix = "mv $out/libexec/nsncd $out/bin/"; };
  qemu_kvm = final.qemu-utils // {
    ga = package "qemu-guest-agent" [ "qemu-guest-agent" ] { };
  };
  which = package "which" [ "gnu-which" ] {
    fix = "ln -s gnuwhich $out/bin/which 2>/dev/null || true";
  };
  xorg = prev.xorg // {
    inherit (final) lndir;
    inherit (plain) xauth;
  };
  cacert = whole (final.runCommandLocal "nss-cacert" { } ''
    dpkg-deb --fsys-tarfile ${source "ca-certificates"} | tar -x
    mkdir -p $out/etc/ssl/{certs,trust-source}
    cat usr/share/ca-certificates/mozilla/*.crt >$out/etc/ssl/certs/ca-bundle.crt
    touch $out/etc/ssl/trust-source/ca-bundle.trust.p11-kit
  '') { p11kit = final.cacert; };

  # NixOS compiles its setuid wrappers with a static musl, and takes a header from glibc's sources: here it uses the
  # machine's static glibc, and what ld.so(8) says it ignores in a setuid program.
  pkgsStatic = {
    callPackage =
      file: arguments:
      final.callPackage file (
        arguments
        // {
          linuxHeaders = null;
          unsecvars = final.writeTextDir "unsecvars.h" ''
            #define UNSECURE_ENVVARS ${
              lib.concatMapStringsSep " " (name: "\"${name}\\0\"") [
                "GCONV_PATH"
                "GETCONF_DIR"
                "GLIBC_TUNABLES"
                "HOSTALIASES"
                "LD_AUDIT"
                "LD_BIND_NOT"
                "LD_BIND_NOW"
                "LD_DEBUG"
                "LD_DEBUG_OUTPUT"
                "LD_DYNAMIC_WEAK"
                "LD_LIBRARY_PATH"
                "LD_ORIGIN_PATH"
                "LD_PRELOAD"
                "LD_PROFILE"
                "LD_SHOW_AUXV"
                "LD_VERBOSE"
                "LD_WARN"
                "LOCALDOMAIN"
                "LOCPATH"
                "MALLOC_TRACE"
                "NIS_PATH"
                "NLSPATH"
                "RES_OPTIONS"
                "RESOLV_HOST_CONF"
                "TMPDIR"
                "TZDIR"
              ]
            }
          '';
          stdenv = final.stdenv // {
            mkDerivation = it: final.stdenv.mkDerivation (it // { CFLAGS = it.CFLAGS ++ [ "-static" ]; });
          };
        }
      );
  };

  # Users, and who may become which user.
  shadow =
    package "shadow"
      [
        "passwd"
        "login"
        "login.defs"
        "uidmap"
      ]
      {
        fix = ''
          for program in login nologin su; do
            [ -e $out/bin/$program ] || ln -s ${final.util-linux}/bin/$program $out/bin/$program
          done
        '';
        attributes = {
          su = final.util-linux;
          shellPath = "/bin/nologin";
        };
      };
  su = final.util-linux;
  pam = package "linux-pam" [
    "libpam-modules"
    "libpam-modules-bin"
    "libpam-runtime"
  ] { };
  linux-pam = final.pam;

  # Disks.
  util-linux =
    package "util-linux"
      [
        "util-linux"
        "util-linux-extra"
        "bsdutils"
        "bsdextrautils"
        "eject"
        "fdisk"
        "login"
        "mount"
        "uuid-runtime"
      ]
      {
        attributes = {
          login = final.util-linux;
          mount = final.util-linux;
          swap = final.util-linux;
          withPatches = final.util-linux;
        };
      };
  util-linuxMinimal = final.util-linux;
  libuuid = final.util-linux;
  cloud-utils = package "cloud-utils" [ "cloud-guest-utils" ] {
    # nixpkgs wraps it with the programs it calls.
    fix = ''
      sed -i '2i PATH=${
        lib.makeBinPath [
          final.gawk
          final.gnugrep
          final.gnused
          final.gptfdisk
          final.util-linux
        ]
      }:$PATH' $out/bin/growpart
    '';
    attributes.guest = final.cloud-utils;
  };
  lvm2 =
    package "lvm2"
      [
        "lvm2"
        "dmsetup"
        "dmeventd"
      ]
      {
        fix = ''
          mkdir -p $out/lib/systemd/system-generators $out/etc/lvm
          sed -i -E 's#(/usr)?/sbin/(dmsetup|lvm|pvscan|vgchange)#'$out'/bin/\2#g; s#/usr/bin/systemd-run#${final.systemd}/bin/systemd-run#g' \
            $out/lib/udev/rules.d/*
        '';
        attributes = {
          scripts = final.lvm2;
          vdo = null;
          withTpm2Tss = false;
        };
      };
  # Their rules call programs at Debian's paths, and none of our hosts has such a disk.
  bcache-tools = package "bcache-tools" [ "bcache-tools" ] { fix = "rm $out/lib/udev/rules.d/*"; };
  mdadm = package "mdadm" [ "mdadm" ] { fix = "rm -f $out/lib/udev/rules.d/*"; };

  # The message bus, and the service manager.
  dbus =
    package "dbus"
      [
        "dbus"
        "dbus-bin"
        "dbus-daemon"
        "dbus-session-bus-common"
        "dbus-system-bus-common"
      ]
      {
        fix = ''
          mkdir -p $out/libexec
          ln -s ../lib/dbus-1.0/dbus-daemon-launch-helper $out/libexec/
          find $out/lib/systemd $out/share/dbus-1 -type f -exec sed -i "s#/usr/bin/#$out/bin/#g" {} +
        '';
      };
  systemd =
    package "systemd"
      [
        "systemd"
        "systemd-sysv"
        "udev"
        "systemd-boot"
        "systemd-boot-efi"
        "systemd-boot-tools"
        "systemd-container"
        "systemd-coredump"
        "systemd-cryptsetup"
        "systemd-oomd"
        "systemd-repart"
        "systemd-resolved"
        "systemd-timesyncd"
        "systemd-userdbd"
        "libpam-systemd"
        "libnss-myhostname"
        "libnss-mymachines"
        "libnss-resolve"
        "libnss-systemd"
      ]
      {
        opens = debian.openedBySystemd;
        fix = ''
          units=$out/example/systemd
          mkdir -p $units
          mv $out/lib/systemd/{system,user} $units/
          for directory in modules-load.d binfmt.d sysctl.d sysusers.d tmpfiles.d; do
            [ ! -d $out/lib/$directory ] || mv $out/lib/$directory $out/example/
          done
          # Remove Debian's presets: NixOS itself decides which units start.
          rm -rf $out/lib/systemd/{system,user}-preset

          # Debian sets up the console with a separate package.
          ln -s ${final.coreutils}/bin/true $out/lib/systemd/systemd-vconsole-setup
          sed "s#@systemd@#$out#" ${./vconsole-setup.service} >$units/system/systemd-vconsole-setup.service

          # Units and rules call programs by Debian's paths. Replace these by store paths.
          {
            echo "s#/usr/lib/(systemd|udev)/#$out/lib/\1/#g"
            for directory in $out ${final.util-linux} ${final.kmod} ${final.coreutils} ${final.bash}; do
              for program in $directory/bin/*; do
                name=''${program##*/}
                case $name in "[" | *.*) continue ;; esac
                echo "s#(^|[ =\"'@:+!|-])(/usr)?/s?bin/$name([ \"']|\$)#\1$program\3#g"
                echo "s#^(Exec[A-Za-z]+=[-+!@:|]*)$name( |\$)#\1$program\2#"
              done
            done
          } >calls.sed
          find $out/example $out/lib/udev/rules.d $out/share/dbus-1 -type f -exec sed -i -E -f calls.sed {} +
        '';
        attributes = {
          inherit (final) kbd kmod util-linux;
          interfaceVersion = 2;
          # The options that Debian's systemd is built with, as far as NixOS asks for them; some are off that a host
          # would carry without need.
          withBootloader = true;
          withBpf = false;
          withCoredump = true;
          withCryptsetup = false;
          withEfi = true;
          withHomed = false;
          withHostnamed = true;
          withImportd = false;
          withKmod = true;
          withLocaled = true;
          withLogind = true;
          withMachined = true;
          withNetworkd = true;
          withNss = true;
          withOomd = true;
          withPortabled = false;
          withRepart = true;
          withResolved = true;
          withSysupdate = false;
          withTimedated = true;
          withTimesyncd = true;
          withTpm2Tss = false;
          withTpm2Units = false;
          withUserDb = true;
          withUtmp = false;
        };
      };
  systemdMinimal = final.systemd;
  # What systemd encrypts with and uses for TPMs, if configured (debian-paths.nix): other hosts don't contain it.
  libcryptsetup = whole libraries.libcryptsetup12 { };
  tpm2-tss = package "tpm2-tss" [
    "libtss2-esys-3.0.2-0t64"
    "libtss2-mu-4.0.1-0t64"
    "libtss2-rc0t64"
    "libtss2-sys1t64"
    "libtss2-tcti-device0t64"
  ] { };
  # Python's module for boot files isn't a nixpkgs package here.
  systemdUkify =
    package "ukify"
      [
        "systemd-ukify"
        "python3-pefile"
      ]
      {
        fix = ''
          mkdir -p $out/share/ukify
          mv $out/lib/python3 $out/share/ukify/
          sed "s#/usr/lib/systemd/#${final.systemd}/lib/systemd/#g" $out/bin/ukify >$out/share/ukify/ukify.py
          rm $out/bin/ukify
          cat >$out/bin/ukify <<'SCRIPT'
          #!/bin/sh
          PATH=${final.systemd}/lib/systemd:$PATH PYTHONDONTWRITEBYTECODE=1 \
            PYTHONPATH=@out@/share/ukify/python3/dist-packages exec ${final.python3}/bin/python3 @out@/share/ukify/ukify.py "$@"
          SCRIPT
          sed -i "s#@out@#$out#g; s#^ *##" $out/bin/ukify
          chmod +x $out/bin/ukify
          mkdir -p $out/lib/systemd
          ln -sfn ../../bin/ukify $out/lib/systemd/ukify
        '';
      };
  udev = final.systemd;

  nix =
    package "nix"
      [
        "nix-bin"
        "nix-setup-systemd"
      ]
      {
        fix = ''
          mkdir -p $out/lib/tmpfiles.d
          echo 'd /nix/var/nix/daemon-socket 0755 root root - -' >$out/lib/tmpfiles.d/nix-daemon.conf
          find $out/lib/systemd -type f -exec sed -i "s#/usr/bin/#$out/bin/#g" {} +
        '';
        attributes.supportsIFD = true;
      };
  nixVersions = prev.nixVersions // {
    stable = final.nix;
    latest = final.nix;
  };
  nix-bash-completions = nothing "nix-bash-completions";

  # systemd-boot's installer is written in it.
  python3 =
    package "python3"
      [
        "python3-minimal"
        "python3.13"
        "python3.13-minimal"
        "libpython3.13-minimal"
        "libpython3.13-stdlib"
      ]
      {
        attributes = {
          withPackages = _: final.python3;
          interpreter = "${final.python3}/bin/python3";
          pythonVersion = "3.13";
          libPrefix = "python3.13";
          sitePackages = "lib/python3.13/site-packages";
        };
      };
  python3Minimal = final.python3;

  # The kernel.
  linuxPackages = lib.makeExtensible (_: {
    kernel = linux;
    inherit (final) stdenv;
    inherit (linux) kernelAtLeast kernelOlder;
    # In Debian's kernel.
    ena = nothing "ena";
    cpupower = package "cpupower" [ "linux-cpupower" ] { };
  });
  linuxPackages_latest = final.linuxPackages;
  linuxKernel = prev.linuxKernel // {
    packages = prev.linuxKernel.packages // {
      linux_default = final.linuxPackages;
    };
  };
  # Not in Debian's main archive; a guest has no use for it.
  microcodeIntel = whole (final.runCommandLocal "microcode-intel" { }
    "mkdir $out; touch $out/intel-ucode.img"
  ) { };
  microcode-intel = final.microcodeIntel;

  # NixOS's own programs, with the machine's Rust.
  cargo = toolchain;
  rustc = toolchain // {
    # rustup's component `llvm-tools`.
    llvmPackages.llvm = final.runCommandLocal "llvm-of-the-machine" { } ''
      mkdir -p $out/bin
      ln -s ${rust}/lib/rustlib/*/bin/llvm-profdata $out/bin/
    '';
  };
  # What trains profile-guided builds; PostgreSQL's programs are in no directory of PATH.
  wrk = ofMachine "wrk" [ "wrk" ] { };
  nghttp2 = ofMachine "nghttp2" [ "h2load" ] { };
  postgresql = nothing "postgresql";
  cargo-auditable.meta.broken = true;
  rustPlatform =
    let
      platform = final.makeRustPlatform { inherit (final) cargo rustc; };
    in
    platform
    // {
      # nixpkgs has tested them.
      buildRustPackage = arguments: platform.buildRustPackage (arguments // { doCheck = false; });
    };
  # Crates come from cargo's own cache: their hashes are checked like those of a fetch.
  fetchurl =
    arguments:
    let
      crate = builtins.match "(crate|cargo-src)-(.*[0-9].*)" (arguments.name or "");
      file = "${lib.removeSuffix ".tar.gz" (lib.elemAt crate 1)}.crate";
    in
    if crate == null then
      prev.fetchurl arguments
    else
      {
        outPath = builtins.path {
          path = crates + "/${file}";
          name = lib.replaceStrings [ "+" ] [ "_" ] file;
          recursive = false;
          inherit (arguments) sha256;
        };
        outputHash = arguments.sha256;
      };
  switch-to-configuration-ng = final.callPackage ./switch-to-configuration.nix {
    source = final.path + "/pkgs/by-name/sw/switch-to-configuration-ng/src";
    dbus-dev = package "dbus-dev" [ "libdbus-1-dev" ] {
      fix = ''
        ln -sfn ${libraries.libdbus-1-3}/lib/libdbus-1.so.3 $out/lib/libdbus-1.so
        sed -i "s#/usr#$out#; s#/x86_64-linux-gnu##; /^Requires.private/d" $out/lib/pkgconfig/dbus-1.pc
      '';
    };
    interfaces = package "systemd-interfaces" [ "systemd-dev" ] { };
    pkg-config = package "pkg-config" [
      "pkgconf"
      "pkgconf-bin"
    ] { fix = "ln -sfn pkgconf $out/bin/pkg-config"; };
  };
  # Their sources are in no package registry; these do the same for our hosts.
  userborn = whole (final.writeShellApplication {
    name = "userborn";
    runtimeInputs = [
      final.coreutils
      final.jq
    ];
    text = lib.readFile ./userborn.sh;
  }) { };
  move-mount-beneath = final.runCommandLocal "move-mount-beneath" { } ''
    mkdir -p $out/bin
    cc -Wall -Werror -o $out/bin/move-mount ${./move-mount.c}
    patchelf --set-interpreter ${loader} --set-rpath ${debian.glibc}/lib $out/bin/move-mount
  '';
  # Only for generations older than boot specifications, which none of our hosts has.
  bootspec = nothing "bootspec";

  # Only for builds.
  binutils = final.stdenv.cc.bintools;
  binutils-unwrapped = final.binutils;
  buildPerl = final.perl;
  # Builds run as root here.
  fakeroot = final.writeShellScriptBin "fakeroot" ''exec "$@"'';
  sqlite = ofMachine "sqlite" [ "sqlite3" ] { };
  libxslt = ofMachine "xsltproc" [ "xsltproc" ] { };
  patchelf = ofMachine "patchelf" [ "patchelf" ] { };
  perl = ofMachine "perl" [ "perl" ] {
    withPackages = _: final.perl;
    libPrefix = "lib/perl5";
  };
  lndir = final.writeTextFile {
    name = "lndir";
    executable = true;
    destination = "/bin/lndir";
    text = ''
      #!/bin/bash
      # lndir [-silent] FROM [TO]
      [[ $1 != -silent ]] || shift
      cp -rs --no-clobber "$(realpath "$1")/." "''${2:-.}/"
      # The directories are copied from read-only ones. Make them writable.
      find "''${2:-.}" -type d -exec chmod u+w {} +
    '';
  };
  remarshal = final.runCommandLocal "remarshal" { } ''
    install -D ${./json2toml.py} $out/bin/json2toml
    ln -s json2toml $out/bin/remarshal
  '';
  # Checkers for scripts do nothing here: nixpkgs' own CI has checked the scripts.
  mypy = final.writeShellScriptBin "mypy" "";
  shellcheck-minimal = final.writeShellScriptBin "shellcheck" "" // {
    # Shows whether it can be built.
    compiler = final.stdenv.cc;
  };
  shellcheck = final.shellcheck-minimal;

  # NixOS preloads this library so that nft asks no kernel when it checks tables. Here nft asks the machine's kernel.
  lklWithFirewall = nothing "lkl";
  libredirect = nothing "libredirect";

  # Shells whose completions or defaults modules look up.
  fish = nothing "fish";
  zsh = nothing "zsh";
  xonsh = nothing "xonsh";
}
