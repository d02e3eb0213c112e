# The console: one web page for the box.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    mkAfter
    mkEnableOption
    mkIf
    mkOption
    types
    ;
  services = config.services.linerate;
  cfg = services.console;
  shared = import ./options.nix { inherit config lib pkgs; } "console";
  ranges = import ../tuning/ranges.nix { inherit lib; };

  # Where a service answers operators, if it runs here and its module is there.
  admin = name: if services.${name}.enable or false then services.${name}.settings.admin else "none";
  asked = lib.genAttrs [
    "links"
    "files"
    "api"
  ] admin;
  # Where the API serves its users: its first address, where the program can connect to it.
  users =
    let
      inherit (services.api.settings) listen;
    in
    if services.api.enable or false && listen != [ ] then lib.head listen else "none";
  # The program connects in the clear.
  unreachable = lib.filter (
    name:
    !(cfg.settings ? ${name})
    && asked.${name} != "none"
    && config.linerate.services.${name}.settings ? admin-cert
  ) (lib.attrNames asked);

  # Those that no queue is on, where that is known: the console is for those who look, and never in the way of those who ask.
  cpu = config.linerate.tuning.cpu or { };
  # Where the helper is asked.
  helper = "/run/linerate-console-helper/socket";
  linerate = lib.getExe cfg.package;

  quiet = lib.subtractLists (cpu.irqCpus or [ ]) (lib.concatLists (cpu.cores or [ ]));
in
{
  imports = [ ./daemon.nix ];

  options.services.linerate.console = {
    enable = mkEnableOption "the console, one web page for the box";
    package = shared.package "linerate";
    inherit (shared)
      openFirewall
      secrets
      socketActivation
      workers
      ;
    tls = import ./tls-options.nix { inherit lib; } cfg.tls;

    helper = mkEnableOption ''
      the console's helper, a unit of its own: by it, those whose key of linerate-links may write at all domains place
      queues and put them back, and look at what services and the whole machine do. It runs as root with three
      capabilities, takes three fixed requests from the console's user alone, and logs each'';

    settings = shared.settings "linerate console" {
      listen = shared.listen [ "127.0.0.1:8110" ];
      admin = shared.admin "127.0.0.1:8111";
      drain-timeout = shared.drain-timeout 5;
      inherit (shared)
        access-log
        otlp
        tls-listen
        trusted-proxy
        ;
      max-connections = mkOption {
        type = types.ints.positive;
        default = 256;
        description = "Connections at once; further ones take the place of those that have stood still for longest.";
      };
    };
  };

  config = mkIf cfg.enable {
    linerate.services.console = {
      description = "Console";
      binary = "linerate";
      command = "console";
      openFiles = 1024;
      # Unless somebody says otherwise.
      derived = removeAttrs (
        asked
        // {
          inherit users;
          profile = "/etc/linerate/profile.json";
        }
        // lib.optionalAttrs cfg.helper { helper = "unix:${helper}"; }
      ) (lib.attrNames cfg.settings);
    };

    systemd.services.linerate-console = {
      # Whose keys let people in.
      after = lib.optionals (asked.links != "none") [ "linerate-links.service" ];
      serviceConfig = {
        ExecReload = "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID";
        # It looks at the machine as `linerate doctor` and `linerate nic` do: /proc, /sys, and the kernel by netlink. It changes
        # nothing there, and could not.
        ProcSubset = "all";
        ProtectProc = "default";
        RestrictAddressFamilies = mkAfter [ "AF_NETLINK" ];
        # It would forbid to ask the kernel whether the clock is synchronised, too.
        ProtectClock = false;
        SystemCallFilter = mkAfter [
          "adjtimex"
          # By which the C library asks what adjtimex does.
          "clock_adjtime"
        ];
        # Everything else of the box comes first.
        CPUWeight = 20;
        OOMScoreAdjust = 300;
        MemoryMax = "256M";
      }
      // lib.optionalAttrs (quiet != [ ]) { CPUAffinity = ranges.show quiet; };
    };

    systemd.sockets.linerate-console-helper = mkIf cfg.helper {
      description = "Socket of the console's helper";
      wantedBy = [ "sockets.target" ];
      listenStreams = [ helper ];
      socketConfig = {
        FileDescriptorName = "helper";
        # The console alone can connect, and the helper asks the kernel who does.
        SocketUser = "linerate-console";
        SocketMode = "0600";
        Backlog = 16;
      };
    };

    systemd.services.linerate-console-helper = mkIf cfg.helper {
      description = "What the console may not do itself";
      requires = [ "linerate-console-helper.socket" ];
      serviceConfig =
        import ../sandbox.nix {
          capabilities = [
            # To set channels, RSS tables and XPS.
            "CAP_NET_ADMIN"
            # To count events of others and of the kernel, and to see what they have mapped, by which addresses get names.
            "CAP_PERFMON"
            # To read the kernel's own addresses.
            "CAP_SYSLOG"
          ];
        }
        // {
          Type = "exec";
          ExecStart = "${linerate} console-helper --listen systemd:helper --user linerate-console --profile /etc/linerate/profile.json";
          # Where the units that place queues keep what was there before.
          RuntimeDirectory = "linerate";
          RuntimeDirectoryPreserve = true;
          TasksMax = 64;
          MemoryMax = "768M";
          LimitNOFILE = 2048;
          # The rings of events.
          LimitMEMLOCK = "64M";
          CPUWeight = 20;
          OOMScoreAdjust = 500;

          # /proc/irq, /sys and everybody's processes are what it is about.
          ProtectKernelTunables = false;
          ProtectKernelLogs = false;
          ProcSubset = "all";
          ProtectProc = "default";
          RestrictAddressFamilies = [
            "AF_INET"
            "AF_NETLINK"
            "AF_UNIX"
          ];
          # Nothing leaves this machine.
          IPAddressDeny = "any";
          SystemCallFilter = [
            "@system-service"
            "~@privileged @resources"
            "perf_event_open"
          ];
        };
    };

    assertions =
      map (name: {
        assertion = false;
        message = "services.linerate.console: linerate-${name} answers operators by TLS alone, which the console does not speak; leave services.linerate.${name}.tls.admin out, and have it listen on loopback or a Unix socket.";
      }) unreachable
      ++ [
        {
          assertion = (cfg.settings.links or asked.links) != "none";
          message = "services.linerate.console: keys of linerate-links let people in; enable services.linerate.links, or say in services.linerate.console.settings.links where it is.";
        }
      ];
  };
}
