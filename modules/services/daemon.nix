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
  # Which of the programs it is, and by which command.
  program ? {
    package = name;
    binary = "linerate-${name}";
    command = "serve";
  },
  # Options of settings that only this daemon has, with a type; any other setting is passed on as it is.
  settings ? { },
  # Its options beside settings.
  options ? { },
  # Whether it keeps state, in /var/lib/linerate-NAME.
  stateful ? false,
  # Whether it logs who wrote what by its API.
  audited ? false,
  # Whether it has a listener for TLS: `tls-listen`, `cert` and `key`, and `admin-cert` and `admin-key`.
  tls ? false,
  # Whether visitors may come by a Unix socket.
  unix ? false,
  # Whether it can be told how many connections may wait to be accepted.
  backlog ? true,
  # Settings that follow from other options.
  derived ? { },
  # Open files beside its connections.
  openFiles,
  # URLs of its databases on other hosts, and files that hold some.
  databases ? { },
  # What operators find set when they call the program, by variable.
  operators ? { },
  # What it adds to the unit.
  unit ? { },
  # What else the host has because of it.
  host ? { },
}:
let
  inherit (lib) mkIf mkMerge;
  cfg = config.services.linerate.${name};
  daemon = "linerate-${name}";
  option = "services.linerate.${name}";
  address = import ./address.nix { inherit lib; };
  network = import ./network.nix;
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

  # Which option names which address.
  listed =
    key:
    map (address: {
      option = "${option}.settings.${key}";
      inherit address;
    });
  addresses =
    listed "listen" cfg.settings.listen
    ++ listed "admin" [ cfg.settings.admin ]
    ++ listed "tls-listen" secureListen;

  # The names of what is set: a table is what they begin with, and `_` does for `-`.
  names =
    prefix: set:
    lib.concatLists (
      lib.mapAttrsToList (
        key: value:
        let
          name = prefix + lib.replaceStrings [ "_" ] [ "-" ] key;
        in
        if lib.isAttrs value then names "${name}-" value else [ name ]
      ) set
    );
  known = (lib.importJSON ./settings.json).${name};
  unknown = lib.subtractLists known (names "" cfg.settings ++ lib.attrNames cfg.secrets);

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
  # Settings that the program does not take end the build, and not the service.
  file =
    let
      unchecked = (pkgs.formats.toml { }).generate "${daemon}-settings.toml" told;
    in
    pkgs.runCommand "${daemon}.toml" { } ''
      ${lib.optionalString (pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform) ''
        ${lib.getExe (cfg.package.generic or cfg.package)} ${program.command} --check --config ${unchecked}
      ''}
      cp ${unchecked} $out
    '';

  # The program as operators call it.
  called =
    if operators == { } then
      cfg.package
    else
      pkgs.symlinkJoin {
        name = "${daemon}-for-operators";
        paths = [ cfg.package ];
        nativeBuildInputs = [ pkgs.makeWrapper ];
        postBuild = "wrapProgram $out/bin/${daemon} ${
          lib.concatStringsSep " " (
            lib.mapAttrsToList (
              variable: value: "--set-default ${variable} ${lib.escapeShellArg value}"
            ) operators
          )
        }";
      };

  # Whether it logs requests or writes in its own directory.
  logs = lib.any (path: path != null && lib.hasPrefix "/var/log/${daemon}/" path) [
    cfg.settings.access-log
    (cfg.settings.audit-log or null)
  ];

  # The service reads a credential of this name as if it were in the environment.
  variable =
    setting: "LINERATE_" + lib.toUpper (lib.replaceStrings [ "-" ] [ "_" ] "${name}-${setting}");
in
{
  imports = [ ../shared.nix ];

  options.services.linerate.${name} =
    import ./options.nix { inherit config lib pkgs; } {
      inherit
        audited
        backlog
        defaults
        name
        program
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
        inherit addresses databases;
        # HTTP/3 has no PROXY header.
        udpPorts = lib.optionals (
          !(cfg.settings.no-http3 or false) && !(cfg.settings.proxy-protocol or false)
        ) (address.ports secureListen);
        # Whoever asks trusts no certificate.
        readyUrl = mkIf (
          address.isTcp cfg.settings.admin && !(told ? admin-cert)
        ) "${address.url cfg.settings.admin}/readyz";
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
      environment.systemPackages = [ called ];

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
          privileged = lib.any (port: port < 1024) (address.ports bound);
        })
        {
          requires = lib.optionals cfg.socketActivation (
            map (socket: "${daemon}-${socket}.socket") (lib.attrNames sockets)
          );
          serviceConfig = {
            ExecStart = "${lib.getExe cfg.package} ${program.command} --config ${file}";
            LoadCredential = lib.mapAttrsToList (setting: path: "${variable setting}:${path}") cfg.secrets;
            User = daemon;
            Group = daemon;
          }
          // lib.optionalAttrs stateful {
            StateDirectory = daemon;
            StateDirectoryMode = "0750";
          }
          // lib.optionalAttrs logs {
            LogsDirectory = daemon;
            LogsDirectoryMode = "0750";
          };
        }
        unit
      ];
    }
    {
      assertions = [
        {
          assertion = cfg.settings.listen != [ ];
          message = "${option}.settings.listen: it is empty, and the program would then listen where it does by default; name an address.";
        }
      ]
      ++ map (proxy: {
        assertion = false;
        message = "${option}.settings.trusted-proxy: ${proxy} is neither an address nor a network such as 10.0.0.0/8 or 2001:db8::/32.";
      }) (lib.filter (proxy: !network.valid proxy) cfg.settings.trusted-proxy)
      ++ map (setting: {
        assertion = false;
        message = "${option}: ${daemon} has no setting ${setting}; `${program.binary} ${program.command} --help` lists them.";
      }) unknown
      ++
        map
          (
            { option, address }:
            {
              assertion = false;
              message =
                if !unix && option != "services.linerate.${name}.settings.admin" then
                  "${option}: ${address} cannot be; visitors of ${daemon} come by TCP alone."
                else
                  "${option}: the service may make no socket at ${lib.removePrefix "unix:" address}; with services.linerate.${name}.socketActivation systemd does.";
            }
          )
          (
            lib.filter (
              each:
              address.isUnix each.address
              && (!cfg.socketActivation || !unix && each.option != "${option}.settings.admin")
            ) addresses
          );
    }
    (lib.optionalAttrs tls certificate.config)
    host
  ]);
}
