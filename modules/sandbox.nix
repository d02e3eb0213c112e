# `serviceConfig` for a unit that gets what it needs and nothing else. A unit uses this and adds what it needs.
#
# `systemd-analyze security` is the measure, and `make nix-check` prints it.
{
  # Capabilities it keeps.
  capabilities ? [ ],
}:
{
  UMask = "0077";
  CapabilityBoundingSet = if capabilities == [ ] then "" else capabilities;
  NoNewPrivileges = true;

  ProtectSystem = "strict";
  ProtectHome = true;
  PrivateTmp = true;
  PrivateDevices = true;
  DevicePolicy = "closed";
  PrivateMounts = true;
  ProtectProc = "invisible";
  ProcSubset = "pid";
  ProtectClock = true;
  ProtectControlGroups = true;
  ProtectHostname = true;
  ProtectKernelLogs = true;
  ProtectKernelModules = true;
  ProtectKernelTunables = true;

  LockPersonality = true;
  MemoryDenyWriteExecute = true;
  PrivateIPC = true;
  RemoveIPC = true;
  RestrictNamespaces = true;
  RestrictRealtime = true;
  RestrictSUIDSGID = true;
  KeyringMode = "private";

  SystemCallArchitectures = "native";
  SystemCallErrorNumber = "EPERM";
}
