# The URL shortener.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.linerate.links;
  address = import ./address.nix { inherit lib; };

  unit = "linerate-links";
  public = lib.imap0 (
    index: where: lib.nameValuePair "public-${toString index}" where
  ) cfg.settings.listen;
  sockets = lib.listToAttrs public // {
    admin = cfg.settings.admin;
  };

  # What the program is told: names of sockets where systemd listens, addresses where it does itself.
  settings =
    lib.filterAttrs (_: value: value != null && value != [ ]) cfg.settings
    // lib.optionalAttrs (cfg.workers != null) { inherit (cfg) workers; }
    // lib.optionalAttrs cfg.socketActivation {
      listen = map (socket: "systemd:${socket.name}") public;
      admin = "systemd:admin";
    };
  file = (pkgs.formats.toml { }).generate "linerate-links.toml" settings;

  mebibyte = 1024 * 1024;
in
{
  imports = [ ../shared.nix ];

  options.services.linerate.links = import ./options.nix { inherit config lib pkgs; } {
    name = "links";
    what = "linerate-links, a URL shortener";
    settings = {
      listen = mkOption {
        type = types.listOf address.type;
        default = [ ":80" ];
        description = "Where redirects are answered.";
      };
      admin = mkOption {
        type = address.type;
        default = "127.0.0.1:8081";
        description = "Where API, health and metrics are answered. Never opened in the firewall.";
      };
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
      max-connections = mkOption {
        type = types.ints.positive;
        default = 16384;
        description = "Connections of all workers together; further ones are closed at once.";
      };
      backlog = mkOption {
        type = types.ints.positive;
        default = 16384;
        description = "Connections that may wait to be accepted; `net.core.somaxconn` caps it.";
      };
      drain-timeout = mkOption {
        type = types.ints.unsigned;
        default = 10;
        description = "How long requests under way have at the end, in seconds.";
      };
      robots = mkOption {
        type = types.nullOr types.path;
        default = null;
        description = "A file with the text of `/robots.txt`. By default crawlers may follow links.";
      };
    };
  };

  config = mkIf cfg.enable {
    linerate.services.links = {
      inherit settings;
      tcpPorts = address.ports cfg.settings.listen;
      readyUrl = mkIf (address.isTcp cfg.settings.admin) "${address.url cfg.settings.admin}/readyz";
    };
    networking.firewall.allowedTCPPorts = mkIf cfg.openFirewall config.linerate.services.links.tcpPorts;

    # A user of its own, and no dynamic one: backups and operators name it.
    users.users.linerate-links = {
      isSystemUser = true;
      group = "linerate-links";
      home = "/var/lib/linerate-links";
    };
    users.groups.linerate-links = { };
    # For operators: `sudo -u linerate-links linerate-links add …`.
    environment.systemPackages = [ cfg.package ];
    environment.variables = {
      LINERATE_LINKS_DATABASE = "/var/lib/linerate-links/links.db";
      LINERATE_LINKS_PUBLIC_URL = cfg.settings.public-url;
    };

    systemd.sockets = mkIf cfg.socketActivation (
      import ./sockets.nix { inherit address lib; } {
        inherit unit;
        inherit (cfg.settings) backlog;
        named = sockets;
      }
    );

    systemd.services.${unit} =
      lib.recursiveUpdate
        (import ./unit.nix { inherit config lib; } {
          description = "URL shortener";
          privilegedPort =
            !cfg.socketActivation && lib.any (port: port < 1024) config.linerate.services.links.tcpPorts;
          # Beside connections: two files of the database for each worker, the writer's, and libraries.
          openFiles = cfg.settings.max-connections + 4096;
          drain = cfg.settings.drain-timeout;
        })
        {
          # What the service is told to serve by is in the database; only `settings` need a restart.
          requires = lib.optionals cfg.socketActivation (
            map (name: "${unit}-${name}.socket") (lib.attrNames sockets)
          );
          serviceConfig = {
            ExecStart = "${lib.getExe cfg.package} serve --config ${file}";
            User = "linerate-links";
            Group = "linerate-links";
            StateDirectory = "linerate-links";
            StateDirectoryMode = "0750";
            # The cache may double while it is filled anew; a connection holds some 8 KiB in the worst case, and
            # SQLite, password hashing and the rest stay below 512 MiB.
            MemoryMax = 2 * cfg.settings.cache-bytes + cfg.settings.max-connections * 8192 + 512 * mebibyte;
          };
        };
  };
}
