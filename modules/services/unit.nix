# The unit of a daemon that answers the network: what all of them have in common.
{ config, lib }:
{
  description,
  # The daemon's open files: connections and what it opens besides.
  openFiles,
  # Seconds that requests under way have at the end.
  drain,
}:
{
  inherit description;
  wantedBy = [ "multi-user.target" ];
  after = [
    "network.target"
    # Which ports it may bind.
    "systemd-sysctl.service"
  ];

  # A daemon that ends five times a minute will not get better by itself.
  startLimitIntervalSec = 60;
  startLimitBurst = 5;

  serviceConfig =
    import ../sandbox.nix { }
    // {
      Type = "notify";
      NotifyAccess = "main";
      # The daemon pings at half of it; an event loop that is stuck for so long serves nobody.
      WatchdogSec = 30;
      Restart = "always";
      RestartSec = 1;
      # The daemon's own time to drain, and some to write down what it holds.
      TimeoutStopSec = drain + 10;

      LimitNOFILE = openFiles;
      # Workers, blocking helpers and the writer: some for each CPU, a few hundred on the largest machine.
      TasksMax = 1024;
      # The daemon answers; batch jobs of the box can wait.
      CPUWeight = 1000;
      OOMScoreAdjust = -500;

      PrivateUsers = true;
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
    // lib.optionalAttrs (config.linerate.serviceCpus != null) {
      CPUAffinity = config.linerate.serviceCpus;
    };
}
