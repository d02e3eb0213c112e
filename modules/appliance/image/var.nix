# /var encrypted, with a key that the machine's TPM gives to what it has booted before. The first boot makes it, and
# shows another key once, for opening the disk without the TPM.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  image = config.linerate.appliance.image;
  cfg = image.var;
  inherit (config.boot.initrd.systemd) package;
  names = import ./names.nix { inherit pkgs; };
  # The key that signed the boot file, and the signature of the expected PCR 11: the boot file's stub leaves both there
  # for the initrd, and systemd looks for them here, including later, when /var is sealed again.
  signature = pkgs.writeShellScript "pcr-signature" ''
    for file in /.extra/tpm2-pcr-{public-key.pem,signature.json}; do
      [[ ! -e $file ]] || cp "$file" /run/systemd/
    done
  '';
  # Explains on the console why a key is requested: systemd itself says so only in the journal.
  why = pkgs.writeShellScript "why-var-is-asked-for" ''
    cat >/dev/console <<'TEXT'

    /var does not open: this is not the TPM that it was sealed to, or something else was booted than it was sealed to.
    Its recovery key opens it: the first boot wrote that into ${names.var.recoveryKey}.
    The box boots again if nobody types it within ${toString cfg.askSeconds} s.
    TEXT
  '';
in
{
  options.linerate.appliance.image.var = {
    encrypt = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether `/var` is encrypted (LUKS2) and opened by the machine's TPM 2.0. A machine without a TPM does not boot.
        The first boot writes a recovery key to `${names.var.recoveryKey}`, for root only and in memory: copy it
        elsewhere before that boot ends. The console asks for the key if the machine has another TPM, or has booted
        something else. Encryption alone protects a disk that is taken out. It protects the whole machine only together
        with `secureBoot` and `pcr.key`, since otherwise the TPM cannot tell what was booted. A box whose `/var` is not
        encrypted yet does not boot this version, and rolls back.
      '';
    };

    askSeconds = mkOption {
      type = types.ints.between 10 86400;
      default = 600;
      description = ''
        How long the console asks for the recovery key, in seconds. Then the box reboots, which rolls back a version on
        trial if the TPM did not open `/var` for it.
      '';
    };

    pcrs = mkOption {
      type = types.listOf (types.ints.between 0 23);
      default = [ 7 ];
      description = ''
        Registers of the TPM (PCRs) that must have the same values as when `/var` was created. 7 is Secure Boot: whether
        it is on, and with whose keys. If the boot file is signed with `pcr.key` (see `NAME-sign`), that signature is
        required too (PCR 11). If an update changes a register, the console asks for the recovery key. With an empty
        list, the TPM releases the key to whatever is booted.
      '';
    };
  };

  config = mkIf (image.enable && cfg.encrypt) {
    assertions = [
      {
        assertion = !(lib.elem 11 cfg.pcrs);
        message = "linerate.appliance.image.var.pcrs: 11 is the boot file itself, which each update replaces; have it signed with pcr.key.";
      }
    ];

    linerate.appliance.image.partitions."40-var".Encrypt = "key-file+tpm2";

    boot.initrd = {
      systemd.tpm2.enable = true;
      # The TPM gives out the key only in the initrd: each later phase of the boot changes PCR 11.
      systemd.additionalUpstreamUnits = [ "systemd-pcrphase-initrd.service" ];
      systemd.storePaths = [
        "${package}/lib/systemd/systemd-pcrextend"
        signature
        why
      ];
      systemd.services.systemd-ask-password-console.serviceConfig.ExecStartPre = why;
      # The modules for LUKS2's default cipher. NixOS would also include modules for other kinds of disks.
      luks.cryptoModules = [
        "aes"
        "xts"
        "sha256"
        "sha512"
      ];
      luks.devices.${names.var.label} = {
        inherit (names.var) device;
        crypttabExtraOpts = [
          "tpm2-device=auto"
          "timeout=${toString cfg.askSeconds}s"
          # The first boot creates the device within this time.
          "x-systemd.device-timeout=10min"
        ];
      };
      systemd.services.systemd-repart = {
        # The firmware says whether there is a TPM, whose driver may load at any time.
        wants = [
          "systemd-pcrphase-initrd.service"
          "tpm2.target"
        ];
        after = [
          "systemd-pcrphase-initrd.service"
          "tpm2.target"
        ];
        before = [ "systemd-cryptsetup@${names.var.label}.service" ];
        serviceConfig.ExecStartPre = signature;
        environment = {
          RECOVERY_KEY = names.var.recoveryKey;
          PCRS = lib.concatMapStringsSep "+" toString cfg.pcrs;
        };
      };
    };
    systemd.tmpfiles.rules = [ "z ${names.var.recoveryKey} 0600 root root" ];
  };
}
