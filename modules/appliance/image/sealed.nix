# Once the box has started, only /var, /tmp and /run are written: / is a small file system in memory that NixOS's
# activation fills in the initrd and that is read-only from then on.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.linerate.appliance.image;
  machineId = "/var/lib/linerate/machine-id";
in
{
  config = lib.mkIf cfg.enable {
    # The machine's identity outlives its versions. systemd needs it before anything could make it, and /etc is
    # read-only.
    system.activationScripts.machineId = ''
      mkdir -p ${dirOf machineId} /root /home /srv /boot
      chmod 0700 /root
      if ! grep -Eqsx '[0-9a-f]{32}' ${machineId}; then
        tr -d - </proc/sys/kernel/random/uuid >${machineId}.new
        chmod 0444 ${machineId}.new
        sync ${machineId}.new
        mv ${machineId}.new ${machineId}
      fi
    '';
    environment.etc."machine-id" = {
      source = machineId;
      mode = "direct-symlink";
    };

    systemd.services.linerate-seal = {
      description = "Let nobody write to the root file system any more";
      wantedBy = [ "sysinit.target" ];
      before = [
        "sysinit.target"
        "shutdown.target"
      ];
      after = [
        "local-fs.target"
        "systemd-tmpfiles-setup.service"
        "userborn.service"
      ];
      conflicts = [ "shutdown.target" ];
      unitConfig.DefaultDependencies = false;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${pkgs.util-linux}/bin/mount -o remount,ro /";
      };
    };
  };
}
