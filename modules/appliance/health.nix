# Whether the box does its work: asked once after boot, before the boot counts as good.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;

  units = map (name: "linerate-${name}.service") (lib.attrNames config.linerate.services);
in
{
  options.linerate.appliance.health = {
    command = mkOption {
      type = types.lines;
      default =
        # Type=notify: a unit is active once it has said that it is ready.
        lib.optionalString (units != [ ]) "systemctl is-active --quiet ${lib.escapeShellArgs units}\n"
        + "linerate doctor --profile /etc/linerate/profile.json --fail-on ${cfg.health.failOn}\n";
      defaultText = lib.literalMD "every service is active, and `linerate doctor` finds nothing as bad as `failOn`";
      description = "What decides whether the box is healthy: a script that ends with 0 when it is.";
    };

    failOn = mkOption {
      type = types.enum [
        "notice"
        "warning"
        "critical"
      ];
      default = "critical";
      description = ''
        How bad a finding of `linerate doctor` has to be for a boot to be bad. Critical is what keeps the box from its
        work, such as a service that is not ready; a value that drifted is a warning, and no reason to boot again.
      '';
    };

    patience = mkOption {
      type = types.ints.positive;
      default = 60;
      description = ''
        How long it may take to become healthy, in seconds. It ends sooner where systemd has given a service up.
      '';
    };

    minFreePercent = mkOption {
      type = types.ints.between 0 100;
      default = 5;
      description = "How much of the root file system has to be free, in percent of bytes and of inodes.";
    };

    maxClockErrorMs = mkOption {
      type = types.nullOr types.ints.positive;
      default = 1000;
      description = "How far off the clock may be at most, by the kernel's own reckoning, in milliseconds.";
    };
  };

  config = mkIf cfg.enable {
    linerate.profile = {
      host = config.networking.hostName;
      disk."/".min_free_percent = cfg.health.minFreePercent;
      time =
        if cfg.health.maxClockErrorMs == null then
          null
        else
          {
            max_error_ms = cfg.health.maxClockErrorMs;
          };
    };

    systemd.services.linerate-health = {
      description = "Whether this boot is a good one";
      requiredBy = [ "boot-complete.target" ];
      before = [ "boot-complete.target" ];
      wants = units;
      after = units;
      onFailure = [ "linerate-fall-back.service" ];
      path = [
        config.systemd.package
        config.linerate.packages.linerate
      ];
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        TimeoutStartSec = cfg.health.patience + 10;
      };
      script = ''
        healthy() (
          set -e
          ${cfg.health.command}
        )
        for _ in $(seq ${toString cfg.health.patience}); do
          # Not `if healthy`, which would turn set -e off inside.
          set +e
          said=$(healthy 2>&1)
          status=$?
          set -e
          [ $status -ne 0 ] || exit 0
          ${lib.optionalString (units != [ ]) ''
            # systemd has given it up, so nobody starts it again.
            ! systemctl is-failed --quiet ${lib.escapeShellArgs units} || break
          ''}
          sleep 1
        done
        echo "$said"
        exit 1
      '';
    };

    # Only a boot that is still on trial ends so: a good generation that falls ill keeps serving what it can.
    systemd.services.linerate-fall-back = {
      description = "Boot again, into the generation before once this one's tries are used up";
      unitConfig.ConditionPathExistsGlob = "/sys/firmware/efi/efivars/LoaderBootCountPath-*";
      serviceConfig = {
        Type = "oneshot";
        ExecStart = "${config.systemd.package}/bin/systemctl reboot";
      };
    };
  };
}
