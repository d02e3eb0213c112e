# The parts of an image, and its disk. system.build.linerateImage is a set of
#   payload  the store, its hashes, and what the boot file is made of: a whole version, but unsigned
#   disk     a disk to boot from, and `update`, what a static server serves, both unsigned
#   sbom     what is in it, as CycloneDX
#   sign     a program that makes both from a payload and keys; keys never enter Nix's store
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.linerate.appliance.image;
  names = import ./names.nix { inherit pkgs; };
  tools = pkgs.buildPackages;
  inherit (config.system.build) toplevel;

  loaderConf = pkgs.writeText "loader.conf" ''
    timeout 0
    editor no
    auto-entries no
    auto-firmware no
  '';

  # The labels, sizes and types of the partitions that the disk image contains; the first boot adds the others.
  partitions = pkgs.writeText "partitions.json" (
    builtins.toJSON {
      inherit (cfg)
        id
        version
        espMiB
        storeMiB
        ;
      inherit (names) architecture efi types;
      verityMiB = names.verityMiB cfg.storeMiB;
      labels = {
        inherit (names) esp;
        store = names.label "store" cfg.version;
        verity = names.label "verity" cfg.version;
      };
    }
  );

  # The whole provenance except the digests of files that are signed later.
  provenance =
    pkgs.runCommand "${cfg.id}-${cfg.version}-provenance.json"
      {
        inherit partitions;
        inherit (cfg.provenance) flakeLock;
        builtBy = cfg.provenance.builder;
        source = toString cfg.provenance.source;
        nativeBuildInputs = [ tools.python3Minimal ];
      }
      ''
        # -B: Python must not write bytecode into the store, which it could as root and without a sandbox.
        python3 -B ${./provenance.py} "$partitions" "$builtBy" "$source" "$flakeLock" ${../../../pkgs/Cargo.lock} "$out"
      '';

  # The whole system except the kernel and the initrd, which are in the boot file.
  payload =
    pkgs.runCommand "${cfg.id}-${cfg.version}-payload"
      {
        inherit partitions toplevel;
        closure = pkgs.closureInfo { rootPaths = [ toplevel ]; };
        initrd = config.system.build.initialRamdisk;
        inherit (cfg) compression storeMiB;
        configuration = (pkgs.formats.ini { }).generate "uki.conf" (
          lib.recursiveUpdate config.boot.uki.settings {
            UKI.Cmdline = "init=${toplevel}/init ${toString config.boot.kernelParams}";
          }
        );
        boot = "${config.systemd.package}/lib/systemd/boot/efi/systemd-boot${names.efi}.efi";
        inherit loaderConf;
        provenance = lib.optionalString (cfg.provenance.builder != null) provenance;
        nativeBuildInputs = [
          tools.cryptsetup
          tools.erofs-utils
          tools.jq
        ];
      }
      ''
        bash ${./store.sh}
      '';

  SYSTEMD = "${tools.systemd}/lib/systemd";
  assembled = {
    inherit payload SYSTEMD;
    nativeBuildInputs = [
      tools.dosfstools
      tools.jq
      tools.mtools
      tools.systemd
      tools.systemdUkify
      tools.util-linux
      tools.zstd
    ];
  };

  disk = pkgs.runCommand "${cfg.id}-${cfg.version}" (
    assembled // { passthru = { inherit payload; }; }
  ) ''bash ${./assemble.sh} ${payload} "$out"'';

  sbom =
    pkgs.runCommand "${cfg.id}-${cfg.version}.cdx.json"
      {
        inherit partitions;
        closure = pkgs.closureInfo { rootPaths = [ toplevel ]; };
        nativeBuildInputs = [ tools.python3Minimal ];
      }
      ''
        python3 -B ${./bom.py} "$partitions" "$closure/registration" ${../../../pkgs/Cargo.lock} "$out"
      '';

  sign = pkgs.writeShellApplication {
    name = "linerate-sign";
    runtimeInputs = assembled.nativeBuildInputs ++ [
      pkgs.coreutils
      pkgs.gnupg
    ];
    text = ''
      export SYSTEMD=${SYSTEMD}
      exec bash ${./assemble.sh} "$@"
    '';
  };
in
{
  system.build.linerateImage = lib.mkIf cfg.enable {
    inherit
      disk
      payload
      sbom
      sign
      ;
  };
}
