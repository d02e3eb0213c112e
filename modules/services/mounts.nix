# The host's mounts that may come late, or not at all, and that some of these places are on: a service that needs them
# is started with them, since systemd does not try again to start what waited for a mount in vain.
{
  config,
  lib,
  utils,
}:
places:
let
  late = lib.filter (
    mount:
    lib.any (option: lib.elem option mount.options) [
      "_netdev"
      "noauto"
      "nofail"
    ]
    && mount.mountPoint != "/"
    && lib.any (lib.hasPrefix "${mount.mountPoint}/") (map (place: "${place}/") places)
  ) (lib.attrValues config.fileSystems);
in
map (mount: "${utils.escapeSystemdPath mount.mountPoint}.mount") late
