# A daemon of this project as a module: its options, its file of settings, its sockets and its unit. The files beside
# this one say what is particular to each.
{
  config,
  lib,
  pkgs,
}:
{
  # Its short name: `links`.
  name,
  # What `mkEnableOption` says.
  what,
  # What its unit is called.
  description,
  # Where it answers visitors, where operators, and how long requests under way have at its end, in seconds.
  defaults,
  # Options of settings that only this daemon has, with a type; any other setting is passed on as it is.
  settings ? { },
  # Its options beside settings.
  options ? { },
  # Whether it keeps state, in /var/lib/linerate-NAME.
  stateful ? false,
  # Whether it has a listener for TLS: `tls-listen`, `cert` and `key`.
  tls ? false,
  # Whether it can be told how many connections may wait to be accepted.
  backlog ? true,
  # Settings that follow from other options.
  derived ? { },
  # Open files beside its connections.
  openFiles,
  # What it adds to the unit.
  unit ? { },
  # What else the host has because of it.
  host ? { },
}:
let
  inherit (lib) mkIf mkMerge;
  cfg = config.services.linerate.${name};
  daemon = "linerate-${name}";
  address = import ./address.nix { inherit lib; };
  certificate = import ./tls.nix { inherit config lib; } daemon cfg;

  # What it asks for where it cannot be told.
  waiting = 16384;

  public = lib.imap0 (
    index: where: lib.nameValuePair "public-${toString index}" where
  ) cfg.settings.listen;
  # Not those of TLS: HTTP/3 has a socket of its own on the same port.
  sockets = lib.listToAttrs public // {
    inherit (cfg.settings) admin;
  };
  secureListen = lib.optionals tls cfg.settings.tls-listen;
  # Where it listens itself, and not systemd for it.
  bound =
    lib.optionals (!cfg.socketActivation) (cfg.settings.listen ++ [ cfg.settings.admin ])
    ++ secureListen;

  # What the program is told: names of sockets where systemd listens, addresses where it does itself.
  told =
    lib.filterAttrs (_: value: value != null && value != [ ]) cfg.settings
    // lib.optionalAttrs (cfg.workers != null) { inherit (cfg) workers; }
    // lib.optionalAttrs tls certificate.settings
    // derived
    // lib.optionalAttrs cfg.socketActivation {
      listen = map (socket: "systemd:${socket.name}") public;
      admin = "systemd:admin";
    };
  file = (pkgs.formats.toml { }).generate "${daemon}.toml" told;

  # The service reads a credential of this name as if it were in the environment.
  variable =
    setting: "LINERATE_" + lib.toUpper (lib.replaceStrings [ "-" ] [ "_" ] "${name}-${setting}");
in
{
  imports = [ ../shared.nix ];

  options.services.linerate.${name} =
    import ./options.nix { inherit config lib pkgs; } {
      inherit
        backlog
        defaults
        name
        settings
        tls
        what
        ;
    }
    // lib.optionalAttrs tls { tls = certificate.options; }
    // options;

  config = mkIf cfg.enable (mkMerge [
    {
      linerate.services.${name} = {
        settings = told;
        tcpPorts = address.ports (cfg.settings.listen ++ secureListen);
        boundPorts = address.ports bound;
        udpPorts = lib.optionals (!(cfg.settings.no-http3 or false)) (address.ports secureListen);
        readyUrl = mkIf (address.isTcp cfg.settings.admin) "${address.url cfg.settings.admin}/readyz";
      };
      networking.firewall = mkIf cfg.openFirewall {
        allowedTCPPorts = config.linerate.services.${name}.tcpPorts;
        allowedUDPPorts = config.linerate.services.${name}.udpPorts;
      };

      # A user of its own, and no dynamic one: backups, databases and operators name it.
      users.users.${daemon} = {
        isSystemUser = true;
        group = daemon;
        home = "/var/lib/${daemon}";
      };
      users.groups.${daemon} = { };
      # For operators, as that user: `linerate-links add …`.
      environment.systemPackages = [ cfg.package ];

      linerate.profile.services."${daemon}.service" =
        let
          inherit (config.systemd.services.${daemon}) serviceConfig;
        in
        {
          limits = {
            open_files = serviceConfig.LimitNOFILE;
            tasks = serviceConfig.TasksMax;
            memory_bytes = serviceConfig.MemoryMax or null;
          };
          listen = lib.filter (where: !lib.hasPrefix "systemd:" where) (
            cfg.settings.listen ++ secureListen ++ [ cfg.settings.admin ]
          );
          backlog = cfg.settings.backlog or waiting;
          cpus = serviceConfig.CPUAffinity or null;
          ready = config.linerate.services.${name}.readyUrl;
        };

      systemd.sockets = mkIf cfg.socketActivation (
        import ./sockets.nix { inherit address lib; } {
          unit = daemon;
          backlog = cfg.settings.backlog or waiting;
          named = sockets;
        }
      );

      systemd.services.${daemon} = mkMerge [
        (import ./unit.nix { inherit config lib; } {
          inherit description;
          openFiles = cfg.settings.max-connections + openFiles;
          drain = cfg.settings.drain-timeout;
        })
        {
          requires = lib.optionals cfg.socketActivation (
            map (socket: "${daemon}-${socket}.socket") (lib.attrNames sockets)
          );
          serviceConfig = {
            ExecStart = "${lib.getExe cfg.package} serve --config ${file}";
            LoadCredential = lib.mapAttrsToList (setting: path: "${variable setting}:${path}") cfg.secrets;
            User = daemon;
            Group = daemon;
          }
          // lib.optionalAttrs stateful {
            StateDirectory = daemon;
            StateDirectoryMode = "0750";
          };
        }
        unit
      ];
    }
    (lib.optionalAttrs tls certificate.config)
    host
  ]);
}
