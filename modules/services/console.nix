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

  # The admin address of a service, if the service runs here and its module is imported.
  admin = name: if services.${name}.enable or false then services.${name}.settings.admin else "none";
  asked = lib.genAttrs [
    "links"
    "files"
    "api"
  ] admin;
  # The public address of the API: its first listen address, if the API runs here.
  users =
    let
      inherit (services.api.settings) listen;
    in
    if services.api.enable or false && listen != [ ] then lib.head listen else "none";
  # The services that the console can't reach: it connects without TLS, and their admin listeners require TLS.
  unreachable = lib.filter (
    name:
    !(cfg.settings ? ${name})
    && asked.${name} != "none"
    && config.linerate.services.${name}.settings ? admin-cert
  ) (lib.attrNames asked);

  # CPUs that serve no queue, if that is known: the console is for those who look, and must never get in the way of
  # requests.
  cpu = config.linerate.tuning.cpu or { };
  # The helper's socket.
  helper = "/run/linerate-console-helper/socket";
  linerate = lib.getExe cfg.package;
  gibibyte = 1024 * 1024 * 1024;

  # The writer of its files, and the writer's socket.
  writer = cfg.filesWriter;
  writerSocket = "/run/linerate-files-writer/socket";
  root = if services.files.enable or false then services.files.settings.root else null;
  hidden = import ./hidden.nix { inherit lib; };

  # The services' audit logs, for services that write one in their own directory.
  audits = lib.filterAttrs (_: path: path != null && path != "-") (
    lib.genAttrs [ "links" "api" ] (
      name: if services.${name}.enable or false then services.${name}.settings.audit-log or null else null
    )
  );
  # Services whose group the console joins: to read those files, and to reach their Unix sockets.
  groups = lib.filter (
    name:
    lib.hasPrefix "/var/log/linerate-${name}/" (audits.${name} or "")
    || lib.hasPrefix "unix:" asked.${name}
    || name == "api" && lib.hasPrefix "unix:" users
  ) (lib.attrNames asked);

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
      ;
    tls = import ./tls-options.nix { inherit lib; } cfg.tls;

    helper = mkEnableOption ''
      the console's helper, a separate unit. With it, people whose key of linerate-links may write at all domains can
      place queues, undo that, and profile services and the whole machine. It runs as root with three capabilities,
      accepts three fixed requests from the console's user only, and logs each'';

    filesWriter = {
      enable = mkEnableOption ''
        the writer of files for the console, a separate unit. With it, people whose key of linerate-links may write at
        all domains can upload, rename and delete below the root of linerate-files, which itself stays read-only. It
        runs as the user `linerate-files-writer`, in the group `linerate-files`, and accepts requests from the console's
        user only, on a Unix socket. A root other than the default must be writable by that user or group'';
      maxFileBytes = mkOption {
        type = types.ints.positive;
        default = 4 * gibibyte;
        description = "The largest file that is accepted, in bytes.";
      };
      maxBytes = mkOption {
        type = types.ints.positive;
        default = 64 * gibibyte;
        description = "The most bytes of all files below the root together; uploads beyond that are refused.";
      };
      maxFiles = mkOption {
        type = types.ints.between 1 10000000;
        default = 100000;
        description = "The most files and directories below the root.";
      };
      maxUploads = mkOption {
        type = types.ints.between 1 1024;
        default = 16;
        description = "The most unfinished uploads.";
      };
      expire = mkOption {
        type = types.ints.between 1 2592000;
        default = 86400;
        description = "How long an abandoned upload is kept, in seconds.";
      };
    };

    settings = shared.settings "linerate console" {
      listen = shared.listen [ "127.0.0.1:8110" ];
      admin = shared.admin "127.0.0.1:8111";
      drain-timeout = shared.drain-timeout 5;
      inherit (shared)
        access-log
        audit-log
        otlp
        tls-listen
        trusted-proxy
        ;
      max-connections = mkOption {
        type = types.ints.positive;
        default = 256;
        description = "The most connections at once; a further one replaces the one that has stalled for longest.";
      };
    };
  };

  config = mkIf cfg.enable {
    linerate.services.console = {
      description = "Console";
      binary = "linerate";
      command = "console";
      openFiles = 1024;
      # Unless it is set explicitly.
      derived = removeAttrs (
        asked
        // {
          inherit users;
          profile = "/etc/linerate/profile.json";
        }
        // lib.mapAttrs' (name: lib.nameValuePair "${name}-audit") audits
        // lib.optionalAttrs cfg.helper { helper = "unix:${helper}"; }
        // lib.optionalAttrs writer.enable { files-writer = "unix:${writerSocket}"; }
      ) (lib.attrNames cfg.settings);
    };

    # Through its listener for operators, files shows the console what is below its root.
    linerate.services.files = mkIf (root != null && !(services.files.settings ? admin-browse)) {
      derived.admin-browse = true;
    };

    systemd.services.linerate-console = {
      # links checks the keys with which people sign in.
      after = lib.optionals (asked.links != "none") [ "linerate-links.service" ];
      serviceConfig = {
        ExecReload = "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID";
        # The console reads what `linerate doctor` and `linerate nic` read: /proc, /sys, and the kernel's answers over
        # netlink. It can't change anything there.
        ProcSubset = "all";
        ProtectProc = "default";
        RestrictAddressFamilies = mkAfter [ "AF_NETLINK" ];
        # ProtectClock would also forbid the query whether the clock is synchronised.
        ProtectClock = false;
        SystemCallFilter = mkAfter [
          "adjtimex"
          # The C library uses this for adjtimex.
          "clock_adjtime"
        ];
        # Everything else on the box comes first.
        CPUWeight = 20;
        OOMScoreAdjust = 300;
        MemoryMax = "256M";
        SupplementaryGroups = map (name: "linerate-${name}") groups;
      }
      // lib.optionalAttrs (quiet != [ ]) { CPUAffinity = ranges.show quiet; };
    };

    systemd.sockets.linerate-console-helper = mkIf cfg.helper {
      description = "Socket of the console's helper";
      wantedBy = [ "sockets.target" ];
      listenStreams = [ helper ];
      socketConfig = {
        FileDescriptorName = "helper";
        # Only the console can connect, and the helper asks the kernel who does.
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
            # To count events of other processes and of the kernel, and to see their mappings, which give addresses
            # names.
            "CAP_PERFMON"
            # To read the kernel's own addresses.
            "CAP_SYSLOG"
          ];
        }
        // {
          Type = "exec";
          ExecStart = "${linerate} console-helper --listen systemd:helper --user linerate-console --profile /etc/linerate/profile.json";
          # Where the units that place queues keep the original settings.
          RuntimeDirectory = "linerate";
          RuntimeDirectoryPreserve = true;
          TasksMax = 64;
          MemoryMax = "768M";
          LimitNOFILE = 2048;
          # The ring buffers of perf events.
          LimitMEMLOCK = "64M";
          CPUWeight = 20;
          OOMScoreAdjust = 500;

          # It is all about /proc/irq, /sys and everybody's processes.
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

    users.users.linerate-files-writer = mkIf writer.enable {
      isSystemUser = true;
      group = "linerate-files";
    };

    systemd.sockets.linerate-files-writer = mkIf writer.enable {
      description = "Socket of what writes files for the console";
      wantedBy = [ "sockets.target" ];
      listenStreams = [ writerSocket ];
      socketConfig = {
        FileDescriptorName = "writer";
        # Only the console can connect, and the writer asks the kernel who does.
        SocketUser = "linerate-console";
        SocketMode = "0600";
        Backlog = 16;
      };
    };

    systemd.services.linerate-files-writer = mkIf (writer.enable && root != null) {
      description = "What writes files for the console";
      requires = [ "linerate-files-writer.socket" ];
      unitConfig.RequiresMountsFor = [ root ];
      serviceConfig = import ../sandbox.nix { } // {
        Type = "exec";
        ExecStart = lib.concatStringsSep " " [
          "${linerate} files-writer --listen systemd:writer --user linerate-console"
          "--root ${lib.escapeShellArg root}"
          "--max-file ${toString writer.maxFileBytes} --max-bytes ${toString writer.maxBytes}"
          "--max-files ${toString writer.maxFiles} --max-uploads ${toString writer.maxUploads}"
          "--expire ${toString writer.expire}"
        ];
        # A separate user: the files that it writes don't belong to the server. The unit has no user namespace: in one, the
        # console's user would appear as nobody.
        User = "linerate-files-writer";
        Group = "linerate-files";
        Restart = "on-failure";
        RestartSec = 1;
        ReadWritePaths = [ root ];
        ProtectHome = if hidden.home "${root}" then "read-only" else true;
        # With RestrictSUIDSGID, openat2 fails with ENOSYS. The writer needs openat2 to stay below its root. It sets the
        # modes of files itself.
        RestrictSUIDSGID = false;
        TasksMax = 128;
        # Pieces of uploads in progress.
        MemoryMax = "512M";
        LimitNOFILE = 2048;
        CPUWeight = 20;
        IOWeight = 20;
        OOMScoreAdjust = 300;
        RestrictAddressFamilies = [ "AF_UNIX" ];
        PrivateNetwork = true;
        IPAddressDeny = "any";
        SystemCallFilter = [
          "@system-service"
          "~@privileged @resources"
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
        {
          assertion = writer.enable -> root != null && (services.files.settings.origin or null) == null;
          message = "services.linerate.console.filesWriter: there is no directory to write below; enable services.linerate.files, without an origin.";
        }
      ];
  };
}
