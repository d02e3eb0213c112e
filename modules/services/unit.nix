# A unit of systemd for a daemon that answers the network: what all of them have in common. Each line is a default, which
# a service and a host may say otherwise.
{ lib }:
{
  # The daemon's open files: connections and what it opens besides.
  openFiles,
  # Seconds that requests under way have at the end.
  drain,
  # Whether it binds a port below 1024 itself.
  privileged,
  # Where its threads run, in the form of `CPUAffinity=`, or null.
  cpus,
}:
let
  # A list is joined with what others add to it.
  defaults = lib.mapAttrs (_: value: if lib.isList value then value else lib.mkDefault value);
in
{
  wantedBy = [ "multi-user.target" ];
  after = [ "network.target" ];

  # What it needs may come hours later than it, such as a database on another machine: it is never given up, and tries
  # again every 15 seconds in the end.
  startLimitIntervalSec = 0;

  # A restart, and not an end and then a beginning, in between of which systemd would let go of the sockets.
  stopIfChanged = false;

  serviceConfig = defaults (
    # The port by a capability, and not by net.ipv4.ip_unprivileged_port_start, which would let anybody on this host bind
    # it while the service is down. The capability does not count in a user namespace (user_namespaces(7)).
    import ../sandbox.nix { capabilities = lib.optional privileged "CAP_NET_BIND_SERVICE"; }
    // {
      Type = "notify";
      NotifyAccess = "main";
      # The daemon pings at half of it; an event loop that is stuck for so long serves nobody.
      WatchdogSec = 30;
      Restart = "always";
      RestartSec = 1;
      RestartSteps = 5;
      RestartMaxDelaySec = 15;
      # The daemon's own time to drain, and some to write down what it holds.
      TimeoutStopSec = drain + 10;

      # systemd keeps the sockets on TCP and UDP addresses while the daemon restarts, so that nobody is refused meanwhile:
      # one for each worker, address and protocol. At a reload another process takes them over, and nobody waits either: a
      # restart is for what a reload cannot change.
      FileDescriptorStoreMax = 4096;

      LimitNOFILE = openFiles;
      # Workers, blocking helpers and the writer: some for each CPU, a few hundred on the largest machine.
      TasksMax = 1024;
      # The daemon answers; batch jobs of the box can wait.
      CPUWeight = 1000;
      OOMScoreAdjust = -500;

      PrivateUsers = !privileged;
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_UNIX"
      ];

      SystemCallFilter = [
        "@system-service"
        "~@privileged @resources"
        # A worker stays on its CPU.
        "sched_setaffinity"
      ];
    }
    // lib.optionalAttrs privileged { AmbientCapabilities = [ "CAP_NET_BIND_SERVICE" ]; }
    // lib.optionalAttrs (cpus != null) { CPUAffinity = cpus; }
  );
}
