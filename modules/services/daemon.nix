# Daemons that answer the network: each of `linerate.services` gets a settings file, sockets, a user and a unit. The
# modules beside this one have what is particular to each.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    concatLists
    mapAttrs'
    mapAttrsToList
    mkIf
    mkMerge
    mkOption
    nameValuePair
    types
    ;
  address = import ./address.nix { inherit lib; };
  limit = import ./limit.nix { inherit lib; };
  network = import ./network.nix;
  unit = import ./unit.nix { inherit lib; };
  known = lib.importJSON ./settings.json;

  services = config.linerate.services;
  cfgOf = name: config.services.linerate.${name};

  # The backlog of a service that doesn't set one.
  waiting = 16384;
  backlog = cfg: cfg.settings.backlog or waiting;

  # A socket, with a name that says where it listens: a switch does not change a socket that runs, but it stops one that
  # is gone, and starts a new one.
  named =
    cfg: kind: where:
    let
      sum = builtins.hashString "sha256" "${where} ${toString (backlog cfg)}";
    in
    nameValuePair "${kind}-${lib.substring 0 8 sum}" where;
  # Sockets for visitors, and the one for operators.
  public = cfg: map (named cfg "public") cfg.settings.listen;
  private = cfg: named cfg "admin" cfg.settings.admin;
  # Without the TLS listeners: HTTP/3 has a separate socket on the same port.
  sockets = cfg: lib.listToAttrs (public cfg ++ [ (private cfg) ]);

  # What the program is told: names of sockets where systemd listens, addresses where it listens itself.
  told =
    name:
    let
      cfg = cfgOf name;
    in
    lib.filterAttrs (_: value: value != null && value != [ ]) cfg.settings
    // lib.optionalAttrs (cfg.workers or null != null) { inherit (cfg) workers; }
    // services.${name}.derived
    // lib.optionalAttrs cfg.socketActivation {
      listen = map (socket: "systemd:${socket.name}") (public cfg);
      admin = "systemd:${(private cfg).name}";
    };

  # Settings that the program rejects fail the build, and not the service.
  settingsFile =
    name:
    let
      inherit (cfgOf name) package;
      unchecked =
        (pkgs.formats.toml { }).generate "linerate-${name}-settings.toml"
          services.${name}.settings;
    in
    pkgs.runCommand "linerate-${name}.toml" { } ''
      ${lib.optionalString (pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform) ''
        ${lib.getExe (package.generic or package)} ${services.${name}.command} --check --config ${unchecked}
      ''}
      cp ${unchecked} $out
    '';

  # The program as operators run it, as the service's user: `linerate-links add …`.
  called =
    name: service:
    let
      inherit (cfgOf name) package;
    in
    if service.operators == { } then
      package
    else
      pkgs.symlinkJoin {
        name = "linerate-${name}-for-operators";
        paths = [ package ];
        nativeBuildInputs = [ pkgs.makeWrapper ];
        postBuild = "wrapProgram $out/bin/linerate-${name} ${
          lib.concatStringsSep " " (
            mapAttrsToList (
              variable: value: "--set-default ${variable} ${lib.escapeShellArg value}"
            ) service.operators
          )
        }";
      };

  # The service reads a credential with this name like an environment variable.
  variable =
    name: setting: "LINERATE_" + lib.toUpper (lib.replaceStrings [ "-" ] [ "_" ] "${name}-${setting}");

  # Whether the service writes an access log or an audit log into its own directory.
  logs =
    name: cfg:
    lib.any (path: path != null && lib.hasPrefix "/var/log/linerate-${name}/" path) [
      cfg.settings.access-log
      (cfg.settings.audit-log or null)
    ];

  # Whether a new process takes over the sockets at a reload.
  takesOver = name: services.${name}.takesOver && (cfgOf name).settings.handover or null != null;

  # A digest of everything that a process of the unit is started with. If a new generation has another digest, a reload
  # starts a new process that takes over, even if the program and its settings are the same.
  sumOf =
    name:
    let
      unit = config.systemd.services."linerate-${name}";
      # A running process knows the first two itself; Environment contains the digest.
      own = [
        "ExecReload"
        "ExecStart"
        "Environment"
      ];
    in
    sum [
      (unit.environment or { })
      (removeAttrs unit.serviceConfig own)
    ];
  sum = value: builtins.hashString "sha256" (builtins.toJSON value);

  unitOf =
    name: service:
    let
      cfg = cfgOf name;
      daemon = "linerate-${name}";
      called = command: "${lib.getExe cfg.package} ${command} --config ${settingsFile name}";
      # Addresses on which the service itself listens, instead of systemd.
      bound =
        lib.optionals (!cfg.socketActivation) (cfg.settings.listen ++ [ cfg.settings.admin ])
        ++ cfg.settings.tls-listen;
    in
    mkMerge [
      (unit {
        openFiles = cfg.settings.max-connections + service.openFiles;
        drain = cfg.settings.drain-timeout;
        privileged = lib.any (port: port < 1024) (address.ports bound);
        cpus = config.linerate.serviceCpus;
      })
      {
        inherit (service) description;
        # Not `requires`: a switch that stops the socket of an address that is gone would stop the service too, while
        # visitors of the other sockets start it again with the old ones.
        wants = lib.optionals cfg.socketActivation (
          map (socket: "${daemon}-${socket}.socket") (lib.attrNames (sockets cfg))
        );
        serviceConfig = {
          ExecStart = called service.command;
          LoadCredential = mapAttrsToList (setting: path: "${variable name setting}:${path}") cfg.secrets;
          RuntimeDirectory = daemon;
          RuntimeDirectoryMode = "0700";
          # systemd shows credentials only to the main process it started, and hides them from a process that becomes
          # the main process at a reload. This mount shows them to both.
          BindReadOnlyPaths = [ "-/run/credentials/${daemon}.service:/run/${daemon}/credentials" ];
          Environment = [
            "CREDENTIALS_DIRECTORY=/run/${daemon}/credentials"
          ]
          ++ lib.optionals (takesOver name) [
            "LINERATE_UNIT=${sumOf name}"
            # systemd loads credentials when it starts the unit, and not at a reload.
            "LINERATE_UNIT_CREDENTIALS=${sum config.systemd.services.${daemon}.serviceConfig.LoadCredential}"
          ];
          User = daemon;
          Group = daemon;
        }
        // lib.optionalAttrs service.stateful {
          StateDirectory = daemon;
          StateDirectoryMode = "0750";
        }
        // lib.optionalAttrs (logs name cfg) {
          LogsDirectory = daemon;
          LogsDirectoryMode = "0750";
        };
      }
      (mkIf service.takesOver {
        # A reload hands over to a new process if possible. If nothing but certificates and rules has changed, it only
        # reads these again. If neither suffices, it makes systemd restart the unit.
        reloadIfChanged = lib.mkDefault (takesOver name);
        serviceConfig = {
          ExecReload = lib.mkDefault (
            if takesOver name then called "reload" else "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID"
          );
        };
      })
    ];

  # The service's part of the profile that `linerate doctor` checks.
  profileOf =
    name:
    let
      cfg = cfgOf name;
      inherit (config.systemd.services."linerate-${name}") serviceConfig;
    in
    {
      limits = lib.mapAttrs (_: limit) {
        open_files = serviceConfig.LimitNOFILE;
        tasks = serviceConfig.TasksMax;
        memory_bytes = serviceConfig.MemoryMax or null;
      };
      listen = lib.filter (where: !lib.hasPrefix "systemd:" where) (
        cfg.settings.listen ++ cfg.settings.tls-listen ++ [ cfg.settings.admin ]
      );
      backlog = backlog cfg;
      cpus = serviceConfig.CPUAffinity or null;
      ready = services.${name}.readyUrl;
    };

  # The names of the settings that are set: a table's name is a prefix, and `_` becomes `-`.
  names =
    prefix: set:
    concatLists (
      mapAttrsToList (
        key: value:
        let
          name = prefix + lib.replaceStrings [ "_" ] [ "-" ] key;
        in
        if lib.isAttrs value then names "${name}-" value else [ name ]
      ) set
    );

  assertionsOf =
    name: service:
    let
      cfg = cfgOf name;
      option = "services.linerate.${name}";
      help = "`${service.binary} ${service.command} --help`";
      unknown = lib.subtractLists known.${name} (names "" cfg.settings ++ lib.attrNames cfg.secrets);
      # Operators, and visitors of some services, may use a Unix socket if systemd makes it.
      misplaced = lib.filter (
        each:
        address.isUnix each.address
        && (!cfg.socketActivation || !service.unixVisitors && each.option != "${option}.settings.admin")
      ) service.addresses;
    in
    [
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
      message = "${option}: linerate-${name} has no setting ${setting}; ${help} lists them.";
    }) unknown
    ++ map (each: {
      assertion = false;
      message =
        if !service.unixVisitors && each.option != "${option}.settings.admin" then
          "${each.option}: ${each.address} cannot be; visitors of linerate-${name} come by TCP alone."
        else
          "${each.option}: the service may make no socket at ${lib.removePrefix "unix:" each.address}; with services.linerate.${name}.socketActivation systemd does.";
    }) misplaced;
in
{
  imports = [
    ../shared.nix
    ./mounts.nix
    ./tls.nix
  ];

  options.linerate.services = mkOption {
    type = types.attrsOf (
      types.submodule (
        { config, name, ... }:
        let
          inherit (cfgOf name) settings;
          # The addresses, with the option that sets each.
          listed =
            key: where:
            map (address: {
              option = "services.linerate.${name}.settings.${key}";
              inherit address;
            }) where;
        in
        {
          options = {
            description = mkOption {
              type = types.str;
              description = "What its unit is called.";
            };
            binary = mkOption {
              type = types.str;
              default = "linerate-${name}";
              description = "The program.";
            };
            command = mkOption {
              type = types.str;
              default = "serve";
              description = "The program's command that serves.";
            };
            openFiles = mkOption {
              type = types.ints.positive;
              description = "Open files beside its connections.";
            };
            takesOver = mkOption {
              type = types.bool;
              default = false;
              description = "Whether its program has a command that reloads it by another process.";
            };
            stateful = mkOption {
              type = types.bool;
              default = false;
              description = "Whether it keeps state, in /var/lib/linerate-NAME.";
            };
            unixVisitors = mkOption {
              type = types.bool;
              default = false;
              description = "Whether visitors may come by a Unix socket.";
            };
            derived = mkOption {
              type = types.attrsOf types.anything;
              default = { };
              description = "Settings that follow from other options.";
            };
            operators = mkOption {
              type = types.attrsOf types.str;
              default = { };
              description = "What operators find set when they call the program, by variable.";
            };
          };

          config = {
            settings = told name;
            tcpPorts = address.ports (settings.listen ++ settings.tls-listen);
            # HTTP/3 has no PROXY header.
            udpPorts = lib.optionals (!(settings.no-http3 or false) && !(settings.proxy-protocol or false)) (
              address.ports settings.tls-listen
            );
            addresses =
              listed "listen" settings.listen
              ++ listed "admin" [ settings.admin ]
              ++ listed "tls-listen" settings.tls-listen;
            # The client of this URL verifies no certificate, so it only uses an admin listener without TLS.
            readyUrl = mkIf (
              address.isTcp settings.admin && !(config.settings ? admin-cert)
            ) "${address.url settings.admin}/readyz";
          };
        }
      )
    );
  };

  config = {
    networking.firewall = mkMerge (
      mapAttrsToList (
        name: service:
        mkIf (cfgOf name).openFirewall {
          allowedTCPPorts = service.tcpPorts;
          allowedUDPPorts = service.udpPorts;
        }
      ) services
    );

    # A fixed user rather than a dynamic one: backups, databases and operators name it.
    users.users = mapAttrs' (
      name: _:
      nameValuePair "linerate-${name}" {
        isSystemUser = true;
        group = "linerate-${name}";
        home = "/var/lib/linerate-${name}";
      }
    ) services;
    users.groups = mapAttrs' (name: _: nameValuePair "linerate-${name}" { }) services;
    environment.systemPackages = mapAttrsToList called services;

    systemd.sockets = mkMerge (
      mapAttrsToList (
        name: _:
        let
          cfg = cfgOf name;
        in
        mkIf cfg.socketActivation (
          import ./sockets.nix { inherit address lib; } {
            unit = "linerate-${name}";
            backlog = backlog cfg;
            named = sockets cfg;
          }
        )
      ) services
    );
    systemd.services = mapAttrs' (
      name: service: nameValuePair "linerate-${name}" (unitOf name service)
    ) services;

    linerate.profile.services = mapAttrs' (
      name: _: nameValuePair "linerate-${name}.service" (profileOf name)
    ) services;

    assertions = concatLists (mapAttrsToList assertionsOf services);
  };
}
