# The file server.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.linerate.files;
  address = import ./address.nix { inherit lib; };
  toml = pkgs.formats.toml { };

  unit = "linerate-files";
  public = lib.imap0 (
    index: where: lib.nameValuePair "public-${toString index}" where
  ) cfg.settings.listen;
  sockets = lib.listToAttrs public;

  # Rules that make no sense end the build, and not the service.
  rules =
    let
      file = toml.generate "linerate-files-rules.toml" cfg.rules;
    in
    pkgs.runCommand "linerate-files-rules" { } ''
      ${lib.getExe (cfg.package.generic or cfg.package)} check ${file}
      cp ${file} $out
    '';

  settings =
    lib.filterAttrs (_: value: value != null) cfg.settings
    // lib.optionalAttrs (cfg.workers != null) { inherit (cfg) workers; }
    // lib.optionalAttrs (cfg.rules != { }) { rules = "/etc/linerate/files-rules.toml"; }
    // lib.optionalAttrs cfg.socketActivation {
      listen = map (socket: "systemd:${socket.name}") public;
    };
  file = toml.generate "linerate-files.toml" settings;
in
{
  imports = [ ../shared.nix ];

  options.services.linerate.files =
    import ./options.nix { inherit config lib pkgs; } {
      name = "files";
      what = "linerate-files, a file server";
      settings = {
        root = mkOption {
          type = types.path;
          default = "/var/lib/linerate-files";
          description = ''
            The directory whose files are served; nothing outside is. Made where it is the default, and then the
            group `linerate-files` may write to it.
          '';
        };
        listen = mkOption {
          type = types.listOf address.type;
          default = [ ":8090" ];
          description = "Where files are served by HTTP/1.1.";
        };
        open-files = mkOption {
          type = types.ints.positive;
          default = 16384;
          description = "Files all workers together keep open. The program's own default is for small machines.";
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
          default = 30;
          description = "How long answers under way have at the end, in seconds.";
        };
      };
    }
    // {
      rules = mkOption {
        inherit (toml) type;
        default = { };
        example = {
          rule = [
            {
              path = "/assets/*";
              cache-control = "public, max-age=31536000, immutable";
            }
          ];
        };
        description = ''
          What holds for some paths and not for others: caching, fields, listings, pages for errors. Checked when
          the system is built, and read again without a restart when it changes.
        '';
      };
    };

  config = mkIf cfg.enable {
    linerate.services.files.tcpPorts = address.ports cfg.settings.listen;
    networking.firewall.allowedTCPPorts = mkIf cfg.openFirewall config.linerate.services.files.tcpPorts;

    # Whoever puts files there is of this group; the service itself only reads.
    users.groups.linerate-files = { };
    systemd.tmpfiles.settings = mkIf (cfg.settings.root == "/var/lib/linerate-files") {
      "10-linerate-files"."/var/lib/linerate-files".d = {
        mode = "2775";
        user = "root";
        group = "linerate-files";
      };
    };

    environment.etc."linerate/files-rules.toml" = mkIf (cfg.rules != { }) { source = rules; };

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
          description = "File server";
          privilegedPort =
            !cfg.socketActivation && lib.any (port: port < 1024) config.linerate.services.files.tcpPorts;
          # A connection may have a pipe beside its socket.
          openFiles = 3 * cfg.settings.max-connections + cfg.settings.open-files + 4096;
          drain = cfg.settings.drain-timeout;
        })
        {
          requires = lib.optionals cfg.socketActivation (
            map (name: "${unit}-${name}.socket") (lib.attrNames sockets)
          );
          reloadTriggers = lib.optional (cfg.rules != { }) rules;
          serviceConfig = {
            ExecStart = "${lib.getExe cfg.package} serve --config ${file}";
            ExecReload = "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID";
            DynamicUser = true;
            SupplementaryGroups = [ "linerate-files" ];
            # No MemoryMax: pages of the files it sends count as its memory, and the kernel takes them back itself.
          };
        };
  };
}
