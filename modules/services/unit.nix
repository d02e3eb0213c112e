# A systemd unit for a daemon that answers the network: what all of them have in common. Each line is a default, which a
# service or a host may override.
{ lib }:
{
  # How many files the daemon may have open, connections included.
  openFiles,
  # For how many seconds running requests may continue while the daemon drains.
  drain,
  # Whether it binds a port below 1024 itself.
  privileged,
  # Where its threads run, in the form of `CPUAffinity=`, or null.
  cpus,
}:
let
  # A list is merged with the lists of other modules; anything else is a default.
  defaults = lib.mapAttrs (_: value: if lib.isList value then value else lib.mkDefault value);
in
{
  wantedBy = [ "multi-user.target" ];
  after = [ "network.target" ];

  # What it needs may come hours later, such as a database on another machine: systemd never gives up, and finally
  # retries every 15 seconds.
  startLimitIntervalSec = 0;

  # A restart, rather than a stop followed by a start, between which systemd would close the sockets.
  stopIfChanged = false;

  serviceConfig = defaults (
    # A capability for the port, and not net.ipv4.ip_unprivileged_port_start, which would let anybody on this host bind
    # it while the service is down. The capability has no effect in a user namespace (user_namespaces(7)).
    import ../sandbox.nix { capabilities = lib.optional privileged "CAP_NET_BIND_SERVICE"; }
    // {
      Type = "notify";
      NotifyAccess = "main";
      # The daemon pings twice as often; an event loop that is stuck for this long serves nobody.
      WatchdogSec = 30;
      Restart = "always";
      # systemd counts every restart in the unit's life until one is made by hand: after five, one that a reload needs
      # takes up to 15 seconds too.
      RestartSec = 1;
      RestartSteps = 5;
      RestartMaxDelaySec = 15;
      # The daemon's own time for draining, and some more for storing what it holds.
      TimeoutStopSec = drain + 10;

      # systemd keeps the sockets for TCP and UDP addresses while the daemon restarts, so that nobody is refused
      # meanwhile: one for each worker, address and protocol. At a reload another process takes them over, so nobody
      # waits either: a restart is for what a reload can't change.
      FileDescriptorStoreMax = 4096;

      LimitNOFILE = openFiles;
      # Workers, blocking helpers and the writer: some for each CPU, a few hundred on the largest machine.
      TasksMax = 1024;
      # The daemon answers; batch jobs on the box can wait.
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
