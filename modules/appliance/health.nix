# Whether the box does its work: asked once after boot, before the boot counts as good.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  services = config.linerate.services;

  units = map (name: "linerate-${name}.service") (lib.attrNames services);
  urls = lib.filter (url: url != null) (map (service: service.readyUrl) (lib.attrValues services));
  command = lib.concatStringsSep "\n" (
    # Type=notify: a unit is active once it has said that it is ready.
    lib.optional (units != [ ]) "systemctl is-active ${lib.escapeShellArgs units}"
    ++ map (url: "curl --fail --silent --show-error --max-time 5 ${lib.escapeShellArg url}") urls
  );
in
{
  options.linerate.appliance.health = {
    command = mkOption {
      type = types.lines;
      default = command;
      defaultText = lib.literalMD "every service is active, and says on its admin listener that it is ready";
      description = "What decides whether the box is healthy: a script that ends with 0 when it is.";
    };

    patience = mkOption {
      type = types.ints.positive;
      default = 60;
      description = "How long it may take to become healthy, in seconds.";
    };
  };

  config = mkIf cfg.enable {
    systemd.services.linerate-health = {
      description = "Whether this boot is a good one";
      requiredBy = [ "boot-complete.target" ];
      before = [ "boot-complete.target" ];
      wants = units;
      after = units;
      onFailure = [ "linerate-fall-back.service" ];
      path = [
        config.systemd.package
        pkgs.curl
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
          sleep 1
        done
        echo "$said"
        exit 1
      '';
    };

    # Only a boot that is still on trial ends so: a good generation that falls ill keeps serving what it can.
    systemd.services.linerate-fall-back = {
      description = "Boot again, into the generation before once this one's trials are used up";
      unitConfig.ConditionPathExistsGlob = "/sys/firmware/efi/efivars/LoaderBootCountPath-*";
      serviceConfig = {
        Type = "oneshot";
        ExecStart = "${config.systemd.package}/bin/systemctl reboot";
      };
    };
  };
}
