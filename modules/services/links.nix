# The URL shortener.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    mkEnableOption
    mkIf
    mkOption
    types
    ;
  cfg = config.services.linerate.links;
  shared = import ./options.nix { inherit config lib pkgs; } "links";
  # `serviceConfig` of what streams the database.
  streaming =
    import ../sandbox.nix { }
    // {
      # The files of the database belong to one user, and only that user may read them.
      User = "linerate-links";
      Group = "linerate-links";
      StateDirectory = "linerate-links";
      StateDirectoryMode = "0750";
      PrivateUsers = true;
      RestrictAddressFamilies = [
        "AF_INET"
        "AF_INET6"
        "AF_NETLINK"
        "AF_UNIX"
      ];
      SystemCallFilter = [
        "@system-service"
        "~@privileged @resources"
      ];
    }
    // lib.optionalAttrs (cfg.replicaEnvironmentFile != null) {
      EnvironmentFile = cfg.replicaEnvironmentFile;
    };
  file = "/var/lib/linerate-links/links.db";
  database = import ./database.nix { inherit config lib; } "links" "database";
  url = cfg.settings.database;

  mebibyte = 1024 * 1024;

  replica = if cfg.replicas == [ ] then cfg.replica else lib.head cfg.replicas;
  # Under the name that releases before 0.5 know too.
  litestream.dbs = [
    {
      path = file;
      replicas = [ replica ];
    }
  ];
in
{
  imports = [ ./daemon.nix ];

  options.services.linerate.links = {
    enable = mkEnableOption "linerate-links, a URL shortener";
    package = shared.package "linerate-links";
    inherit (shared)
      openFirewall
      secrets
      socketActivation
      workers
      ;
    tls = import ./tls-options.nix { inherit lib; } cfg.tls;

    settings = shared.settings "linerate-links serve" {
      listen = shared.listen [ ":80" ];
      admin = shared.admin "127.0.0.1:8081";
      drain-timeout = shared.drain-timeout 10;
      inherit (shared)
        access-log
        audit-log
        backlog
        handover
        max-connections
        otlp
        tls-listen
        trusted-proxy
        ;
      public-url = mkOption {
        type = types.strMatching "https?://.+";
        example = "https://go.example";
        description = "The start of short URLs. Targets at its host are refused, since they would loop.";
      };
      database = mkOption {
        type = types.nullOr types.str;
        default = database.default file;
        defaultText = lib.literalMD "the local PostgreSQL where `database.createLocally` asks for it, or the file `${file}`";
        example = "postgres://links@db.example/links";
        description = ''
          Which database: a file, or `postgres://…`. With a password in it, it is one of `secrets` instead. The directory
          of a file elsewhere has to exist, and to be writable for the user `linerate-links`.
        '';
      };
      cache-bytes = mkOption {
        type = types.ints.unsigned;
        default = 64 * mebibyte;
        description = "Memory for the cache of links, in bytes; 0 turns it off.";
      };
      robots = mkOption {
        type = types.nullOr types.path;
        default = null;
        description = "A file with the text of `/robots.txt`. By default crawlers may follow links.";
      };
    };

    database = database.options;

    replica = mkOption {
      type = types.nullOr (pkgs.formats.yaml { }).type;
      default = null;
      example = {
        url = "s3://bucket/links";
      };
      description = ''
        Where Litestream streams the database to: one `replica` of its configuration. Since 0.5, Litestream supports
        only one for each database.
      '';
    };

    replicas = mkOption {
      type = types.listOf (pkgs.formats.yaml { }).type;
      default = [ ];
      visible = false;
      description = "Its old name: a list, of which one is taken.";
    };

    replicaEnvironmentFile = mkOption {
      # A string, since a path would be copied into the store.
      type = types.nullOr (types.strMatching "/.+");
      default = null;
      example = "/var/lib/secrets/replica";
      description = ''
        A file on the host with environment variables for Litestream, such as `LITESTREAM_ACCESS_KEY_ID=…`, if the
        host's role does not suffice. systemd reads it.
      '';
    };

    litestream = mkOption {
      type = types.package;
      default = pkgs.litestream;
      defaultText = lib.literalExpression "pkgs.litestream";
      description = ''
        The Litestream package. NixOS before 25.11 has a version with a known vulnerability, which evaluates only if
        `nixpkgs.config.permittedInsecurePackages` names it.
      '';
    };
  };

  config = mkIf cfg.enable {
    linerate.services.links = {
      takesOver = true;
      description = "URL shortener";
      stateful = true;
      # Two files of the database for each worker, the writer's, and libraries.
      openFiles = 4096;
      inherit (database) databases;
      operators = {
        LINERATE_LINKS_PUBLIC_URL = cfg.settings.public-url;
      }
      // lib.optionalAttrs (url != null) { LINERATE_LINKS_DATABASE = url; };
    };

    systemd.services.linerate-links = lib.mkMerge [
      (lib.mkIf (replica != null) {
        requires = [ "linerate-links-restore.service" ];
        after = [ "linerate-links-restore.service" ];
      })
      database.unit
      {
        serviceConfig = {
          # The cache may double while it is refilled; a connection takes about 32 KiB in the worst case, which is TLS.
          # There are two processes while one drains. Responses waiting for clients, SQLite, password hashing and the
          # rest stay below 512 MiB.
          MemoryMax =
            3 * cfg.settings.cache-bytes + 2 * cfg.settings.max-connections * 32768 + 512 * mebibyte;
        };
      }
    ];
    systemd.services.postgresql = database.serverUnit;
    services.postgresql = database.server;

    warnings =
      lib.optional (cfg.replicas != [ ])
        "services.linerate.links.replicas is called replica now, and is one: services.linerate.links.replica = { … };";

    assertions = database.assertions ++ [
      {
        assertion = replica == null || url == file;
        message = "services.linerate.links.replica: Litestream streams the file ${file}, and the links are elsewhere (settings.database).";
      }
      {
        assertion = lib.length (cfg.replicas ++ lib.optional (cfg.replica != null) cfg.replica) <= 1;
        message = "services.linerate.links.replica: Litestream takes one replica of a database from 0.5 on, so there is no list of replicas.";
      }
    ];

    environment.etc."linerate/litestream.yml" = lib.mkIf (replica != null) {
      # JSON is also YAML.
      text = builtins.toJSON litestream;
    };

    # To restore what was streamed.
    environment.systemPackages = lib.optional (replica != null) cfg.litestream;

    # Its own units, and not services.litestream, which runs as another user for other services' databases.
    systemd.services.linerate-litestream = lib.mkIf (replica != null) {
      description = "Replica of the links";
      # Whatever starts links starts this, also a mount that comes late (mounts.nix).
      inherit (config.systemd.services.linerate-links) wantedBy;
      wants = [ "network-online.target" ];
      # The database exists once links has started.
      after = [
        "linerate-links.service"
        "network-online.target"
      ];
      # It ends if a replica is unreachable at the start, and has to keep trying.
      startLimitIntervalSec = 0;
      restartTriggers = [ config.environment.etc."linerate/litestream.yml".source ];
      serviceConfig = streaming // {
        ExecStart = "${lib.getExe' cfg.litestream "litestream"} replicate -config /etc/linerate/litestream.yml";
        Restart = "always";
        RestartSec = 5;
        # What it copies comes first.
        CPUWeight = 50;
        IOWeight = 50;
        MemoryMax = "512M";
      };
    };

    # A box that has lost its disk gets its links back before links starts. Otherwise links would create an empty
    # database, which would be the newest state of the replica a second later.
    systemd.services.linerate-links-restore = lib.mkIf (replica != null) {
      description = "Links from their replica";
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      startLimitIntervalSec = 0;
      unitConfig.ConditionPathExists = "!${file}";
      serviceConfig = streaming // {
        Type = "oneshot";
        ExecStart = "${lib.getExe' cfg.litestream "litestream"} restore -if-db-not-exists -if-replica-exists -config /etc/linerate/litestream.yml ${file}";
        # links waits until the replica has been asked, and does not fail meanwhile.
        Restart = "on-failure";
        RestartMode = "direct";
        RestartSec = 5;
        TimeoutStartSec = "infinity";
      };
    };
  };
}
