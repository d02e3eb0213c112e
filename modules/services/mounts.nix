# Starts services with mounts of the host that come late, or only by hand, and that they need (`RequiresMountsFor=`):
# systemd does not try again to start what waited for a mount in vain.
{
  config,
  lib,
  utils,
  ...
}:
let
  isLate =
    mount:
    mount.mountPoint != "/"
    && lib.any (option: lib.elem option mount.options) [
      "_netdev"
      "noauto"
      "nofail"
    ];
  late = map (mount: mount.mountPoint) (lib.filter isLate (lib.attrValues config.fileSystems));
  isOn = place: mountPoint: lib.hasPrefix "${mountPoint}/" "${place}/";
  # systemd takes the directories that it makes for a unit as required too.
  made = {
    CacheDirectory = "/var/cache";
    LogsDirectory = "/var/log";
    StateDirectory = "/var/lib";
  };
  mountsOf =
    unit:
    let
      # Strings or lists, each of which may name several.
      listed = value: lib.splitString " " (toString value);
      places =
        listed (unit.unitConfig.RequiresMountsFor or [ ])
        ++ lib.concatLists (
          lib.mapAttrsToList (
            key: above: map (name: "${above}/${name}") (listed (unit.serviceConfig.${key} or [ ]))
          ) made
        );
    in
    lib.filter (mountPoint: lib.any (place: isOn place mountPoint) places) late;
in
{
  systemd.services = lib.mapAttrs' (
    name: _:
    lib.nameValuePair "linerate-${name}" {
      wantedBy = map (mountPoint: "${utils.escapeSystemdPath mountPoint}.mount") (
        mountsOf config.systemd.services."linerate-${name}"
      );
    }
  ) config.linerate.services;
}
