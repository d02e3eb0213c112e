# The JSON API.
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
  cfg = config.services.linerate.api;
  shared = import ./options.nix { inherit config lib pkgs; } "api";
  local = cfg.database.createLocally;
  # PostgreSQL lets in who has the name of its user.
  name = "linerate-api";
  mebibyte = 1024 * 1024;
  url = cfg.settings.database-url;
  # PostgreSQL on another host, or where a secret says.
  remote =
    cfg.secrets ? database-url
    ||
      url != null
      && lib.hasPrefix "postgres" url
      && builtins.match "[a-z]+://([^@/]*@)?(%2F|localhost|127[.]|\\[::1]|[/?]).*" url == null;
  compatibility = import ../compatibility.nix { inherit lib; };
  inherit (compatibility) postgresql;
in
{
  imports = [ ./daemon.nix ];

  options.services.linerate.api = {
    enable = mkEnableOption "linerate-api, a JSON REST API";
    package = shared.package "linerate-api";
    inherit (shared)
      openFirewall
      secrets
      socketActivation
      workers
      ;
    tls = import ./tls-options.nix { inherit lib; } cfg.tls;

    settings = shared.settings "linerate-api serve" {
      listen = shared.listen [ ":8100" ];
      admin = shared.admin "127.0.0.1:8101";
      drain-timeout = shared.drain-timeout 30;
      inherit (shared)
        access-log
        audit-log
        max-connections
        otlp
        tls-listen
        trusted-proxy
        ;
      cache-bytes = mkOption {
        type = types.ints.unsigned;
        default = 128 * mebibyte;
        description = "Memory for users that were read, in bytes; 0 turns the cache off.";
      };
      auth = mkOption {
        type = types.enum [
          "auto"
          "keys"
          "none"
        ];
        default = "auto";
        description = ''
          Who may ask: who has a key, or anybody. `auto` is anybody where every address is of this host alone. Where keys
          are needed and there are none, the service does not start: `linerate-api key add` makes one.
        '';
      };
      database-url = mkOption {
        type = types.nullOr types.str;
        default =
          if local then
            "postgres://${name}@%2Frun%2Fpostgresql/${name}"
          else if cfg.secrets ? database-url then
            null
          else
            "sqlite:/var/lib/${name}/api.db";
        defaultText = lib.literalMD "the local PostgreSQL where `database.createLocally` asks for it, or SQLite in `/var/lib/linerate-api`";
        example = "postgres://api@db.example/api";
        description = ''
          Which database: `sqlite:PATH` or `postgres://…`. With a password in it, it is one of `secrets` instead.
        '';
      };
    };

    database.files = mkOption {
      # Strings, since paths would be copied into the store.
      type = types.attrsOf (types.strMatching "/.+");
      default = { };
      example = {
        "db.pem" = "/var/lib/secrets/db.pem";
      };
      description = ''
        Files that the URL of the database names by these names, as in `sslrootcert=db.pem`, `sslcert`, `sslkey` and
        `passfile`. The service gets them as credentials of systemd, whoever may read them.
      '';
    };

    database.createLocally = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether this host has a PostgreSQL for the service, reached by its socket alone: it knows the service by the
        user that it runs as, and there is no password.
      '';
    };
  };

  config = mkIf cfg.enable {
    linerate.services.api = {
      description = "JSON API";
      stateful = true;
      unixVisitors = true;
      # Connections to the database, its files, and libraries.
      openFiles = 4096;
      databases = {
        urls = lib.optional (remote && url != null) url;
        files = lib.optional (cfg.secrets ? database-url) cfg.secrets.database-url;
      };
      operators = lib.optionalAttrs (url != null) { LINERATE_API_DATABASE_URL = url; };
    };

    systemd.services.linerate-api = {
      # Once roles and databases are there, or a way to those of another host.
      wants = lib.optional local postgresql ++ lib.optional remote "network-online.target";
      after = lib.optional local postgresql ++ lib.optional remote "network-online.target";
      serviceConfig = {
        LoadCredential = lib.mapAttrsToList (file: path: "${file}:${path}") cfg.database.files;
        # Twice the cache while it is filled anew; a connection holds some 32 KiB, and a few batches of the largest size may
        # be read at once.
        MemoryMax = 2 * cfg.settings.cache-bytes + cfg.settings.max-connections * 32768 + 512 * mebibyte;
      };
    };

    services.postgresql = mkIf local {
      enable = true;
      ensureDatabases = [ name ];
      ensureUsers = [
        {
          inherit name;
          ensureDBOwnership = true;
        }
      ];
    };
    systemd.services.postgresql = mkIf local { serviceConfig = compatibility.postgresqlRestart; };

    assertions = [
      {
        assertion = !(local && cfg.secrets ? database-url);
        message = "services.linerate.api: the local database needs no secret; take database.createLocally or secrets.database-url.";
      }
      {
        assertion = url == null || builtins.match "[^/]*//[^@/]*:[^@/]*@.*" url == null;
        message = "services.linerate.api.settings.database-url: everybody on the host could read its password; give the URL by services.linerate.api.secrets.database-url.";
      }
    ];
  };
}
