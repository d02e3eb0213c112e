# A new generation is on trial until the box was healthy with it (systemd's automatic boot assessment): the boot
# loader counts its trials, health.nix judges, and after the last trial the generation before boots.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  # NixOS has it from 26.05 on.
  counts = options.boot.loader.systemd-boot ? bootCounting;
  uses = config.boot.loader.systemd-boot.enable;
in
{
  options.linerate.appliance.update = {
    trials = mkOption {
      type = types.ints.positive;
      default = 2;
      description = "How often a new generation may try: once more than a fault that passes needs.";
    };

    flake = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "git+https://git.example/boxes";
      description = ''
        Where the box takes its configuration from every night. Null: only by hand, with `nixos-rebuild boot
        --flake` and a reboot.
      '';
    };
  };

  config = mkIf cfg.enable (
    lib.mkMerge [
      (lib.optionalAttrs counts {
        boot.loader.systemd-boot.bootCounting = mkIf uses {
          enable = true;
          tries = cfg.update.trials;
        };
      })
      {
        warnings =
          lib.optional (uses && !counts)
            "linerate.appliance: this nixpkgs has no boot counting, so a generation that fails is not rolled back.";

        boot.loader.systemd-boot.configurationLimit = lib.mkDefault 5;

        system.autoUpgrade = mkIf (cfg.update.flake != null) {
          enable = true;
          inherit (cfg.update) flake;
          # The next boot, which is counted, and not the running system.
          operation = "boot";
          allowReboot = true;
          dates = lib.mkDefault "03:40";
          randomizedDelaySec = lib.mkDefault "30min";
        };
      }
    ]
  );
}
