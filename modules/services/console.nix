# The console: one web page for the box.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkForce mkOption types;
  services = config.services.linerate;
  said = services.console.settings;
  ranges = import ../tuning/ranges.nix { inherit lib; };

  # Where a service answers operators, if it runs here and its module is there.
  admin = name: if services.${name}.enable or false then services.${name}.settings.admin else "none";
  asked = lib.genAttrs [
    "links"
    "files"
    "api"
  ] admin;
  # The program connects in the clear.
  unreachable = lib.filter (
    name:
    !(said ? ${name})
    && asked.${name} != "none"
    && config.linerate.services.${name}.settings ? admin-cert
  ) (lib.attrNames asked);

  # Those that no queue is on, where that is known: the console is for those who look, and never in the way of those who ask.
  cpu = config.linerate.tuning.cpu or { };
  quiet = lib.subtractLists (cpu.irqCpus or [ ]) (lib.concatLists (cpu.cores or [ ]));
in
import ./daemon.nix { inherit config lib pkgs; } {
  name = "console";
  what = "the console, one web page for the box";
  description = "Console";
  program = {
    package = "linerate";
    binary = "linerate";
    command = "console";
  };
  defaults = {
    listen = [ "127.0.0.1:8110" ];
    admin = "127.0.0.1:8111";
    drain-timeout = 5;
  };
  backlog = false;
  tls = true;
  openFiles = 1024;

  settings = {
    max-connections = mkOption {
      type = types.ints.positive;
      default = 256;
      description = "Connections at once; further ones take the place of those that have stood still for longest.";
    };
  };

  # Unless somebody says otherwise.
  derived = removeAttrs (asked // { profile = "/etc/linerate/profile.json"; }) (lib.attrNames said);

  unit.serviceConfig = {
    ExecReload = "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID";
    # It looks at the machine as `linerate doctor` and `linerate nic` do: /proc, /sys, and the kernel by netlink. It changes
    # nothing there, and could not.
    ProcSubset = mkForce "all";
    ProtectProc = mkForce "default";
    RestrictAddressFamilies = lib.mkAfter [ "AF_NETLINK" ];
    # It would forbid to ask the kernel whether the clock is synchronised, too.
    ProtectClock = mkForce false;
    SystemCallFilter = lib.mkAfter [
      "adjtimex"
      # By which the C library asks what adjtimex does.
      "clock_adjtime"
    ];
    # Everything else of the box comes first.
    CPUWeight = mkForce 20;
    OOMScoreAdjust = mkForce 300;
    MemoryMax = "256M";
  }
  // lib.optionalAttrs (quiet != [ ]) { CPUAffinity = mkForce (ranges.show quiet); };

  host = {
    assertions =
      map (name: {
        assertion = false;
        message = "services.linerate.console: linerate-${name} answers operators by TLS alone, which the console does not speak; leave services.linerate.${name}.tls.admin out, and have it listen on loopback or a Unix socket.";
      }) unreachable
      ++ [
        {
          assertion = (said.links or asked.links) != "none";
          message = "services.linerate.console: keys of linerate-links let people in; enable services.linerate.links, or say in services.linerate.console.settings.links where it is.";
        }
      ];
    # Whose keys let people in.
    systemd.services.linerate-console.after = lib.optionals (asked.links != "none") [
      "linerate-links.service"
    ];
  };
}
