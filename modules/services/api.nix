# The JSON API.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.linerate.api;
  local = cfg.database.createLocally;
  # PostgreSQL lets in who has the name of its user.
  name = "linerate-api";
  # 25.11 made a target of it, which is there once roles and databases are.
  postgresql =
    if config.systemd.targets ? postgresql then "postgresql.target" else "postgresql.service";
in
import ./daemon.nix { inherit config lib pkgs; } {
  name = "api";
  what = "linerate-api, a JSON REST API";
  description = "JSON API";
  defaults = {
    listen = [ ":8082" ];
    admin = "127.0.0.1:8083";
    drain-timeout = 10;
  };
  # Connections to the database, its files, and libraries.
  openFiles = 4096;

  settings.database-url = mkOption {
    type = types.nullOr types.str;
    default =
      if local then
        "postgres:///${name}?host=/run/postgresql&user=${name}"
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

  options.database.createLocally = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether this host has a PostgreSQL for the service, reached by its socket alone: it knows the service by the
      user that it runs as, and there is no password.
    '';
  };

  unit = {
    # It waits for its database by itself, and answers 503 until then.
    wants = lib.optional local postgresql;
    after = lib.optional local postgresql;
    serviceConfig = {
      User = name;
      Group = name;
      StateDirectory = name;
      StateDirectoryMode = "0750";
    };
  };

  host = {
    users.users.${name} = {
      isSystemUser = true;
      group = name;
      home = "/var/lib/${name}";
    };
    users.groups.${name} = { };
    # For operators: `sudo -u linerate-api linerate-api key …`.
    environment.systemPackages = [ cfg.package ];

    services.postgresql = mkIf local {
      enable = true;
      ensureDatabases = [ name ];
      ensureUsers = [
        {
          inherit name;
          ensureDBOwnership = true;
        }
      ];
      # Nothing but its socket.
      settings.listen_addresses = lib.mkForce "";
    };

    assertions = [
      {
        assertion = !(local && cfg.secrets ? database-url);
        message = "services.linerate.api: the local database needs no secret; take database.createLocally or secrets.database-url.";
      }
    ];
  };
}
