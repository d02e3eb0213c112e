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
  database = import ./database.nix { inherit config lib; } "api" "database-url";
  mebibyte = 1024 * 1024;
  url = cfg.settings.database-url;
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
        handover
        max-connections
        otlp
        tls-listen
        trusted-proxy
        ;
      cache-bytes = mkOption {
        type = types.ints.unsigned;
        default = 128 * mebibyte;
        description = "Memory for the cache of users, in bytes; 0 turns it off.";
      };
      auth = mkOption {
        type = types.enum [
          "auto"
          "keys"
          "none"
        ];
        default = "auto";
        description = ''
          Whether clients need a key. With `auto` they need none if every address is reachable from this host only. If
          keys are needed and none exists, the service does not start; `linerate-api key add` creates one.
        '';
      };
      database-url = mkOption {
        type = types.nullOr types.str;
        default = database.default "sqlite:/var/lib/linerate-api/api.db";
        defaultText = lib.literalMD "the local PostgreSQL where `database.createLocally` asks for it, or SQLite in `/var/lib/linerate-api`";
        example = "postgres://api@db.example/api";
        description = ''
          Which database: `sqlite:PATH` or `postgres://…`. With a password in it, it is one of `secrets` instead. The
          directory of a file elsewhere has to exist, and to be writable for the user `linerate-api`.
        '';
      };
    };

    database = database.options;
  };

  config = mkIf cfg.enable {
    linerate.services.api = {
      takesOver = true;
      description = "JSON API";
      stateful = true;
      unixVisitors = true;
      # Connections to the database, its files, and libraries.
      openFiles = 4096;
      inherit (database) databases;
      operators = lib.optionalAttrs (url != null) { LINERATE_API_DATABASE_URL = url; };
    };

    systemd.services = {
      linerate-api = lib.mkMerge [
        database.unit
        {
          # Twice the cache while it is refilled, plus that of another process that drains; a connection to either takes
          # about 32 KiB, and a few batches of the largest size may be read at once.
          serviceConfig.MemoryMax =
            3 * cfg.settings.cache-bytes + 2 * cfg.settings.max-connections * 32768 + 512 * mebibyte;
        }
      ];
      postgresql = database.serverUnit;
    };
    services.postgresql = database.server;

    inherit (database) assertions;
  };
}
