# A new generation is on trial until the box has been healthy with it (systemd, Automatic Boot Assessment): the boot
# loader counts its tries, health.nix judges it, and after the last try the previous generation boots.
{
  config,
  lib,
  options,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  loader = config.boot.loader.systemd-boot;
  compatibility = import ../compatibility.nix { inherit lib; };
  # NixOS counts boots itself from 26.11 on.
  counts = options.boot.loader.systemd-boot ? bootCounting;

  # The script NAME.sh beside this file, as a program.
  script =
    name: runtimeInputs:
    pkgs.writeShellApplication {
      name = "linerate-${name}";
      runtimeInputs = [ pkgs.coreutils ] ++ runtimeInputs;
      text = lib.readFile (./. + "/${name}.sh");
    };
  keep = script "keep" [
    pkgs.gnugrep
    pkgs.gnused
  ];
  trial = script "trial" [
    pkgs.gnugrep
    pkgs.gnused
  ];
  reboot = script "reboot" [ config.systemd.package ];
  prune = script "prune" [ config.nix.package ];
  # Exists while the box updates itself: a system that has failed its trial is then installed again each night, and does
  # not get its tries again.
  marker = "/run/linerate-nightly";
  # The entry that this boot came from, if it was counted.
  counted = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
  # For a shell: whether this boot is on trial, and not a good one by now.
  onTrial = "[ -e ${counted} ] && ! ${config.systemd.package}/bin/systemctl is-active --quiet systemd-bless-boot.service";
  # What has a boot entry stays.
  kept = lib.max cfg.update.keep (
    if loader.configurationLimit == null then 0 else loader.configurationLimit
  );
  bootDirectory =
    if loader.xbootldrMountPoint == null then
      config.boot.loader.efi.efiSysMountPoint
    else
      loader.xbootldrMountPoint;
in
{
  options.linerate.appliance.update = {
    tries = mkOption {
      type = types.ints.positive;
      default = 2;
      description = "How many boots a new generation gets. Two forgive one temporary fault.";
    };

    flake = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "git+https://git.example/boxes";
      description = ''
        The flake that the box updates itself from every night; it reboots if anything has changed. Null: only by hand,
        with `nixos-rebuild boot --flake` and a reboot.

        Nothing is signed: whoever may push there, or impersonate the server, is root on the box the next night. Use ssh
        or https, and a branch that few may push to.
      '';
    };

    keep = mkOption {
      type = types.ints.positive;
      default = 12;
      description = ''
        How many of the newest generations stay. Before it updates itself from `flake`, the box removes all older ones
        but the one that runs, and then all garbage (`nix-store --gc`), so that nightly updates never fill the disk. A
        generation that may have a boot entry stays too (`boot.loader.systemd-boot.configurationLimit`). A box on trial
        removes nothing.
      '';
    };

    trial = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether a new generation is on trial: systemd-boot counts its boots. Without this, an unhealthy generation
        stays, and so does an unhealthy version of an image.
      '';
    };
  };

  config = mkIf cfg.enable (
    lib.mkMerge [
      (lib.optionalAttrs counts {
        boot.loader.systemd-boot.bootCounting = mkIf cfg.update.trial {
          enable = true;
          inherit (cfg.update) tries;
        };
      })

      (lib.optionalAttrs (!counts) {
        # For images, where NixOS's installer doesn't run (hosts/image.sh).
        system.build.trial = mkIf cfg.update.trial (lib.getExe trial);
        # One text, so that nothing of others comes between its parts.
        boot.loader.systemd-boot.extraInstallCommands = mkIf loader.enable (
          lib.mkBefore (
            ''
              # NixOS's script goes on when it could not write its entries, and its result is that of the last command.
              failed=$?
              # The generation that runs is kept, unless it is itself on trial.
              running=/run/booted-system counted=
              if ${onTrial}; then
                running= counted=${counted}
              fi
              incomplete=
              if [ $failed != 0 ]; then
                incomplete=1
              else
                ${lib.getExe keep} ${bootDirectory} /nix/var/nix/profiles/system "$1" $running || failed=1 incomplete=1
              fi
            ''
            + lib.optionalString cfg.update.trial ''
              # Whatever has failed: without its counter, an entry that NixOS has written again would count as good.
              ${lib.getExe trial} ${bootDirectory} ${toString cfg.update.tries} ${marker} "$counted" "$incomplete" || failed=1
            ''
            + ''
              [ $failed = 0 ] || exit 1
            ''
          )
        );
      })

      {
        # On an image without trials, every boot that comes this far is good (health.nix). Its boot file has a counter if
        # a version with trials wrote it, or if the power went just after it was written.
        systemd = mkIf (cfg.update.trial || cfg.image.enable) (
          compatibility.bless { inherit (config.systemd) package; }
        );
      }

      {
        systemd.services.nixos-upgrade = mkIf (cfg.update.flake != null) {
          serviceConfig.StateDirectory = "linerate-update";
          preStart = "touch ${marker}";
          postStop = "rm -f ${marker}";
          postStart = "${lib.getExe reboot} /run/booted-system /nix/var/nix/profiles/system /var/lib/linerate-update/tried";
        };
        # What the next update checks settings with, where the box's own programs are for another CPU than the builder's.
        # No garbage, or a changed setting would mean to compile them.
        system.extraDependencies = mkIf (cfg.update.flake != null) (
          lib.concatMap (package: lib.optional (package ? generic) package.generic) (
            lib.attrValues config.linerate.packages
          )
        );
        # A unit of its own: if it fails, the update goes on, and nothing of the update has to be slow.
        systemd.services.linerate-prune = mkIf (cfg.update.flake != null) {
          description = "Remove old generations, and what nothing needs";
          wantedBy = [ "nixos-upgrade.service" ];
          before = [ "nixos-upgrade.service" ];
          serviceConfig = {
            Type = "oneshot";
            Nice = 19;
            IOSchedulingClass = "idle";
          };
          script = ''
            if ${onTrial}; then
              echo "this boot is on trial: nothing is removed"
              exit 0
            fi
            # What has an entry may boot next: one that was chosen by hand, or older ones while none can be written.
            ${lib.getExe prune} /nix/var/nix/profiles/system ${toString kept} /run/booted-system \
              $(sed -ns 's,^options .*init=\(/nix/store/[^/ ]*\)/init.*,\1,p' ${bootDirectory}/loader/entries/*.conf)
          '';
        };
      }

      {
        boot.loader.systemd-boot = {
          configurationLimit = lib.mkDefault 5;
          # Nobody may change the kernel's command line at the console.
          editor = lib.mkDefault false;
        };

        # A generation that hangs before it can be judged reboots too.
        boot.kernelParams = [ "boot.panic_on_fail" ];
        systemd = compatibility.watchdog {
          runtime = lib.mkDefault "30s";
          reboot = lib.mkDefault "10min";
        };

        system.autoUpgrade = mkIf (cfg.update.flake != null) {
          enable = true;
          inherit (cfg.update) flake;
          # It affects the next boot, which is counted, and not the running system. NixOS itself only reboots for
          # another kernel.
          operation = "boot";
          allowReboot = false;
          dates = lib.mkDefault "03:40";
          randomizedDelaySec = lib.mkDefault "30min";
        };
        assertions = [
          {
            assertion = cfg.update.trial -> loader.enable || cfg.image.enable;
            message = "linerate.appliance.update.trial: boots are counted by systemd-boot alone; set boot.loader.systemd-boot.enable, or trial = false, and then nothing falls back.";
          }
          {
            assertion = cfg.update.flake != null -> config.system.autoUpgrade.rebootWindow == null;
            message = "linerate.appliance.update.flake: the box boots right after its update; set system.autoUpgrade.dates and not rebootWindow.";
          }
        ];
      }
    ]
  );
}
