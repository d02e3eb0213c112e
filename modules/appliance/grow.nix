# The root partition grows at boot where there is room. Without room, nothing waits for growpart to find that out, which
# starts dozens of processes before any file system but the root is there.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  hasRoom = pkgs.writeShellScript "has-room" (lib.readFile ./grow.sh);
in
{
  config = lib.mkIf (config.linerate.appliance.enable && config.boot.growPartition) {
    systemd.services.growpart.serviceConfig.ExecCondition =
      "${hasRoom} ${config.fileSystems."/".device}";
  };
}
