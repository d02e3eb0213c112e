# What each CPU does, and how CPUs sleep.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  tuning = config.linerate.tuning;
  cfg = tuning.cpu;
  ranges = import ./ranges.nix { inherit lib; };

  # `isolcpus=managed_irq,domain,2-3` isolates 2 and 3.
  isolated = lib.concatMap (
    parameter:
    lib.concatMap ranges.parse (
      lib.filter (word: builtins.match "[0-9]+(-[0-9]+)?" word != null) (
        lib.splitString "," (lib.removePrefix "isolcpus=" parameter)
      )
    )
  ) (lib.filter (lib.hasPrefix "isolcpus=") config.boot.kernelParams);
  placed = lib.unique (cfg.serviceCpus ++ cfg.irqCpus);
  onIsolated = lib.intersectLists placed isolated;
  cpus = types.listOf types.ints.unsigned;

  parameters = lib.optionals (cfg.maxCState != null) [
    "intel_idle.max_cstate=${toString cfg.maxCState}"
    "processor.max_cstate=${toString cfg.maxCState}"
  ];

  threads = lib.concatLists cfg.cores;
  beyond = lib.subtractLists threads placed;
  queuesOn = core: lib.length (lib.intersectLists core cfg.irqCpus);
  twice = lib.filter (core: queuesOn core > 1) cfg.cores;
in
{
  options.linerate.tuning.cpu = {
    virtual = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the host is a virtual machine, whose CPU frequency the hypervisor sets.";
    };

    cores = mkOption {
      type = types.listOf cpus;
      default = [ ];
      example = [
        [
          0
          2
        ]
        [
          1
          3
        ]
      ];
      description = ''
        The CPUs of each physical core, as `lscpu --extended` shows them. Evaluation then refuses a placement on other
        CPUs, or one that leaves a core idle while another serves two queues. Empty: unknown.
      '';
    };

    irqCpus = mkOption {
      type = cpus;
      default = [ ];
      example = lib.literalExpression "lib.range 0 7";
      description = ''
        CPUs for the network card's interrupts, one queue each: physical cores before their siblings, since two queues
        on one core share its caches and ports. The kernel's ENA driver itself pins queue i to CPU i.
      '';
    };

    serviceCpus = mkOption {
      type = cpus;
      default = [ ];
      example = lib.literalExpression "lib.range 0 7";
      description = ''
        CPUs for the services' workers, one worker each. If a core also takes a queue's interrupts, packets are still in
        its cache when the worker reads them. Empty: all.
      '';
    };

    governor = mkOption {
      type = types.nullOr types.str;
      default = if cfg.virtual then null else "performance";
      defaultText = lib.literalExpression ''if virtual then null else "performance"'';
      description = ''
        The frequency governor. A core that has to speed up first answers late. Source: tuned, profile
        throughput-performance.
      '';
    };

    maxCState = mkOption {
      type = types.nullOr types.ints.unsigned;
      default = if tuning.profile == "latency" then 1 else null;
      defaultText = lib.literalExpression ''if profile == "latency" then 1 else null'';
      description = ''
        The deepest sleep of an idle core. Waking from C6 takes over 100 µs, from C1 some 2; the price is power, and
        with it the turbo of the other cores. Source: Amazon EC2, processor state control; intel_idle.
      '';
    };
  };

  config = mkIf tuning.enable {
    linerate.serviceCpus = mkIf (cfg.serviceCpus != [ ]) (ranges.show cfg.serviceCpus);
    powerManagement.cpuFreqGovernor = mkIf (cfg.governor != null) cfg.governor;
    boot.kernelParams = parameters;
    linerate.profile = {
      kernel = { inherit parameters; };
      cpu = {
        inherit (cfg) governor;
        threads = if threads == [ ] then null else lib.length threads;
      };
    };

    # irqbalance would move the interrupts that were placed.
    services.irqbalance.enable = lib.mkDefault false;

    assertions = [
      {
        assertion = onIsolated == [ ];
        message = "linerate.tuning.cpu: isolcpus= keeps work off CPUs ${ranges.show onIsolated}, where irqCpus or serviceCpus put some.";
      }
      {
        assertion = cfg.cores == [ ] || beyond == [ ];
        message = "linerate.tuning.cpu: irqCpus or serviceCpus name CPUs ${ranges.show beyond}, which no core of this host has.";
      }
      {
        assertion = twice == [ ] || lib.all (core: queuesOn core > 0) cfg.cores;
        message = "linerate.tuning.cpu: irqCpus ${ranges.show (lib.intersectLists (lib.concatLists twice) cfg.irqCpus)} are threads of one core, while another core has no queue.";
      }
      {
        assertion = lib.length (lib.unique threads) == lib.length threads;
        message = "linerate.tuning.cpu: a CPU is in two of the cores.";
      }
      {
        assertion = !(cfg.virtual && cfg.governor != null);
        message = "linerate.tuning.cpu: a virtual machine has no frequency to govern; governor has to be null.";
      }
    ];
  };
}
