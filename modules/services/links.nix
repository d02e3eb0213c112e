# The URL shortener.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.linerate.links;
  database = "/var/lib/linerate-links/links.db";

  mebibyte = 1024 * 1024;
in
import ./daemon.nix { inherit config lib pkgs; } {
  name = "links";
  what = "linerate-links, a URL shortener";
  description = "URL shortener";
  defaults = {
    listen = [ ":80" ];
    admin = "127.0.0.1:8081";
    drain-timeout = 10;
  };
  stateful = true;
  # Two files of the database for each worker, the writer's, and libraries.
  openFiles = 4096;

  settings = {
    public-url = mkOption {
      type = types.strMatching "https?://.+";
      example = "https://go.example";
      description = "What short URLs begin with; its host is refused in targets, since it would loop.";
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

  # The cache may double while it is filled anew; a connection holds some 8 KiB in the worst case, and SQLite,
  # password hashing and the rest stay below 512 MiB.
  unit.serviceConfig.MemoryMax =
    2 * cfg.settings.cache-bytes + cfg.settings.max-connections * 8192 + 512 * mebibyte;

  options.replicas = mkOption {
    inherit (pkgs.formats.yaml { }) type;
    default = [ ];
    example = [ { url = "s3://bucket/links"; } ];
    description = ''
      Where Litestream streams the database to, off the box, as `replicas` of its configuration. Keys, where the
      host's role does not do, come by `services.litestream.environmentFile`.
    '';
  };

  host = {
    environment.variables = {
      LINERATE_LINKS_DATABASE = database;
      LINERATE_LINKS_PUBLIC_URL = cfg.settings.public-url;
    };

    services.litestream = lib.mkIf (cfg.replicas != [ ]) {
      enable = true;
      settings.dbs = [
        {
          path = database;
          inherit (cfg) replicas;
        }
      ];
    };
    systemd.services.litestream = lib.mkIf (cfg.replicas != [ ]) {
      # The database is there once links was.
      after = [ "linerate-links.service" ];
      # It ends where a replica is out of reach when it starts, and is not given up for that.
      unitConfig.StartLimitIntervalSec = 0;
      serviceConfig = {
        RestartSec = 5;
        # Files of the database belong to one user, who alone may read them.
        User = lib.mkForce "linerate-links";
        Group = lib.mkForce "linerate-links";
        UMask = lib.mkForce "0077";
        # It never stands in the way of what it copies.
        CPUWeight = 50;
        IOWeight = 50;
        MemoryMax = "512M";
      };
    };
  };
}
