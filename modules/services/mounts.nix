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
  mountsOf =
    unit:
    let
      places = unit.unitConfig.RequiresMountsFor or [ ];
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
