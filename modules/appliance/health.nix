# Checks once after boot whether the box works. The boot counts as good only if it does.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;

  units = map (name: "linerate-${name}.service") (lib.attrNames config.linerate.services);
  databases = map (service: service.databases) (lib.attrValues config.linerate.services);
  urls = lib.concatMap (each: each.urls) databases;
  files = lib.concatMap (each: each.files) databases;
  # Cards that the host declares, each by its driver and, behind a slash, its address if it is told by that.
  cards = lib.unique (
    map (card: "${card.driver}/${toString card.mac}") (
      lib.attrValues (config.linerate.tuning.nic or { })
    )
  );
in
{
  options.linerate.appliance.health = {
    command = mkOption {
      type = types.lines;
      default =
        # Type=notify: a unit is active once it has reported that it is ready. Each is asked for by itself, since of
        # several it is enough for `is-active` if one is active.
        lib.concatMapStrings (unit: ''
          systemctl is-active --quiet ${unit} || { echo "${unit} is not active"; exit 1; }
        '') units
        + "linerate doctor --profile /etc/linerate/profile.json --fail-on ${cfg.health.failOn}\n";
      defaultText = lib.literalMD "every service is active, and `linerate doctor` finds nothing as bad as `failOn`";
      description = "The script that decides whether the box is healthy: it exits with 0 if so.";
    };

    failOn = mkOption {
      type = types.enum [
        "notice"
        "warning"
        "critical"
      ];
      default = "critical";
      description = ''
        The severity from which a finding of `linerate doctor` makes a boot bad. A finding is critical if the box cannot
        do its work, for instance because a service is not ready. A setting that has changed is a warning, and no reason
        to reboot.
      '';
    };

    patience = mkOption {
      type = types.ints.positive;
      default = 60;
      description = ''
        How long the box may take to become healthy, in seconds, once everything is there that `waitForOthers` waits
        for.
      '';
    };

    waitForOthers = mkOption {
      type = types.ints.unsigned;
      default = 24 * 60 * 60;
      description = ''
        How long a boot stays undecided because of something that the box does not control, in seconds: a card of
        `linerate.tuning.nic` of which no port has a carrier, an unreachable database on another host, or links'
        replica. Meanwhile the boot is neither good nor bad, and the services keep trying. After that, the box has
        `patience`, whatever is missing.
      '';
    };

    minFreePercent = mkOption {
      type = types.ints.between 0 100;
      default = 5;
      description = ''
        How much of the root file system must be free, in percent of bytes and of inodes. On an image, this is about
        `/var`.
      '';
    };

    maxClockErrorMs = mkOption {
      type = types.nullOr types.ints.positive;
      default = 1000;
      description = "The largest error of the clock that the kernel may estimate, in milliseconds.";
    };
  };

  config = mkIf cfg.enable {
    linerate.profile = {
      host = config.networking.hostName;
      # In an image, / is in memory and read-only, so /var is checked instead.
      disk.${if cfg.image.enable then "/var" else "/"}.min_free_percent = cfg.health.minFreePercent;
      image =
        if cfg.image.enable then
          {
            store = "/nix/store";
            secure_boot = cfg.image.secureBoot;
            encrypted = lib.optional cfg.image.var.encrypt "/var";
          }
        else
          null;
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
      # Without trials, the boot is good whatever this finds, but that is still useful to know.
      requiredBy = lib.optional cfg.update.trial "boot-complete.target";
      wantedBy = lib.optional (!cfg.update.trial) "multi-user.target";
      before = lib.optional cfg.update.trial "boot-complete.target";
      wants = units;
      after = units;
      onFailure = lib.optional cfg.update.trial "linerate-fall-back.service";
      # A service that never starts, such as links whose replica cannot be reached, holds this one back, whose own
      # timeout counts only once it runs. Ten minutes are for the rest of the boot.
      unitConfig.JobTimeoutSec = cfg.health.waitForOthers + cfg.health.patience + 600;
      # A switch is no boot: the one that is judged has been judged.
      restartIfChanged = false;
      path = [
        config.systemd.package
        config.linerate.packages.linerate
      ];
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        # The script's own timeouts, plus a minute for the checks themselves.
        TimeoutStartSec = cfg.health.waitForOthers + cfg.health.patience + 60;
      };
      script = ''
        healthy() (
          set -e
          ${cfg.health.command}
        )
        # Prints what other machines have not made available yet, in a line.
        missing() {
          local card interface without url each host port unreached
          for card in ${lib.concatStringsSep " " cards}; do
            # Not every port of a card has to be used, so one with a carrier is enough.
            without=
            for interface in /sys/class/net/*; do
              [ "$(basename "$(readlink "$interface/device/driver")")" = "''${card%/*}" ] || continue
              case ''${card#*/} in
                "" | "$(cat "$interface/address" 2>/dev/null)") ;;
                *) continue ;;
              esac
              # Of a port that is down, the carrier cannot be read.
              case $(cat "$interface/carrier" 2>/dev/null) in
                1) continue 2 ;;
                0) without+="''${without:+ or }''${interface##*/}" ;;
              esac
            done
            [ -z "$without" ] || printf 'a carrier at %s; ' "$without"
          done
          for url in ${lib.escapeShellArgs urls} ${
            lib.concatMapStringsSep " " (file: "\"$(cat ${lib.escapeShellArg file} 2>/dev/null)\"") files
          }; do
            # It is enough to reach one of its hosts.
            unreached=
            for each in $(sed -nE 's,^postgres[a-z]*://([^@/?]*@)?([^/?]*).*$,\2,p' <<<"$url" | tr , ' '); do
              # The host and the port, unless the host is a path.
              read -r host port < <(sed -E 's,^\[?([^][%:]+|[0-9a-f:]+)\]?(:([0-9]+))?$,\1 \3,; t; s/.*//' <<<"$each")
              case $host in
                "" | localhost | 127.* | ::1) continue 2 ;;
              esac
              ! timeout 5 ${pkgs.runtimeShell} -c ': >/dev/tcp/$0/$1' "$host" "''${port:-5432}" 2>/dev/null || continue 2
              unreached+="''${unreached:+ or }$host, port ''${port:-5432}"
            done
            [ -z "$unreached" ] || printf 'a way to %s; ' "$unreached"
          done
        }
        # Seconds since the machine was switched on. SECONDS of bash would follow the clock, which is set after a boot.
        now() {
          local up
          read -r up _ </proc/uptime
          echo "''${up%%.*}"
        }
        started=$(now)
        since=$started
        told=
        while true; do
          # Not `if healthy`, which would turn set -e off inside.
          set +e
          said=$(healthy 2>&1)
          status=$?
          set -e
          [ $status -ne 0 ] || exit 0
          others=
          [ $(($(now) - started)) -ge ${toString cfg.health.waitForOthers} ] || others=$(missing)
          if [ -n "$others" ]; then
            [ "$others" = "$told" ] || echo "not decided yet, since there is not: $others"
            told=$others
            since=$(now)
          elif [ $(($(now) - since)) -ge ${toString cfg.health.patience} ]; then
            break
          fi
          sleep 1
        done
        echo "$said"
        exit 1
      '';
    };

    # Only a boot that is still on trial ends this way: a good generation with a fault continues to serve what it can.
    systemd.services.linerate-fall-back = {
      description = "Boot again, into the generation before once this one's tries are used up";
      unitConfig.ConditionPathExistsGlob = "/sys/firmware/efi/efivars/LoaderBootCountPath-*";
      serviceConfig = {
        Type = "oneshot";
        # The variable above stays for as long as the boot lasts, and does not say whether it is a good one by now.
        ExecCondition = "${pkgs.runtimeShell} -c '[ \"$(${config.systemd.package}/lib/systemd/systemd-bless-boot status)\" != good ]'";
        ExecStart = "${config.systemd.package}/bin/systemctl reboot";
      };
    };
  };
}
