# Which CPUs do what, and how they sleep.
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
in
{
  options.linerate.tuning.cpu = {
    virtual = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the host is a virtual machine: its frequency is the hypervisor's business.";
    };

    threads = mkOption {
      type = types.nullOr types.ints.positive;
      default = null;
      example = 16;
      description = "Logical CPUs of the host, so that a placement beyond them is found before it is booted.";
    };

    irqCpus = mkOption {
      type = cpus;
      default = [ ];
      example = lib.literalExpression "lib.range 0 7";
      description = ''
        CPUs that take the network card's interrupts, one queue each: physical cores before their siblings, since
        two queues on one core share its caches and ports. In-tree ENA pins queue i to CPU i by itself.
      '';
    };

    serviceCpus = mkOption {
      type = cpus;
      default = [ ];
      example = lib.literalExpression "lib.range 0 7";
      description = ''
        CPUs of the services' workers, one worker each. On a core that takes a queue's interrupts, packets are
        still in its cache when the worker reads them. Empty: all.
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
    boot.kernelParams = lib.optionals (cfg.maxCState != null) [
      "intel_idle.max_cstate=${toString cfg.maxCState}"
      "processor.max_cstate=${toString cfg.maxCState}"
    ];

    # It would move what is placed here.
    services.irqbalance.enable = lib.mkDefault false;

    assertions = [
      {
        assertion = !(config.services.irqbalance.enable && cfg.irqCpus != [ ]);
        message = "linerate.tuning.cpu: irqbalance would move the interrupts away from irqCpus.";
      }
      {
        assertion = onIsolated == [ ];
        message = "linerate.tuning.cpu: isolcpus= keeps work off CPUs ${ranges.show onIsolated}, where irqCpus or serviceCpus put some.";
      }
      {
        assertion = cfg.threads == null || lib.all (cpu: cpu < cfg.threads) placed;
        message = "linerate.tuning.cpu: irqCpus or serviceCpus name a CPU beyond the ${toString cfg.threads} of this host.";
      }
      {
        assertion = !(cfg.virtual && cfg.governor != null);
        message = "linerate.tuning.cpu: a virtual machine has no frequency to govern; governor has to be null.";
      }
    ];
  };
}
