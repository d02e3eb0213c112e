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

    settings = shared.settings "linerate console" {
      listen = shared.listen [ "127.0.0.1:8110" ];
      admin = shared.admin "127.0.0.1:8111";
      drain-timeout = shared.drain-timeout 5;
      inherit (shared) access-log tls-listen trusted-proxy;
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
