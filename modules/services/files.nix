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
  # Not those of TLS: HTTP/3 has a socket of its own on the same port.
  sockets = lib.listToAttrs public // {
    inherit (cfg.settings) admin;
  };

  secure = cfg.tls.certificate != null;
  credentials = "/run/credentials/${unit}.service";

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
    lib.filterAttrs (_: value: value != null && value != [ ]) cfg.settings
    // lib.optionalAttrs (cfg.workers != null) { inherit (cfg) workers; }
    // lib.optionalAttrs (cfg.rules != { }) { rules = "/etc/linerate/files-rules.toml"; }
    // lib.optionalAttrs secure {
      cert = "${credentials}/certificate";
      key = "${credentials}/key";
    }
    // lib.optionalAttrs cfg.socketActivation {
      listen = map (socket: "systemd:${socket.name}") public;
      admin = "systemd:admin";
    };
  file = toml.generate "linerate-files.toml" settings;

  # What systemd listens on needs no privilege here.
  bound = lib.optionals (!cfg.socketActivation) cfg.settings.listen ++ cfg.settings.tls-listen;
  base = import ./unit.nix { inherit config lib; } {
    description = "File server";
    privilegedPort = lib.any (port: port < 1024) (address.ports bound);
    # A connection may have a pipe beside its socket.
    openFiles = 3 * cfg.settings.max-connections + cfg.settings.open-files + 4096;
    drain = cfg.settings.drain-timeout;
  };
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
        tls-listen = mkOption {
          type = types.listOf address.type;
          default = lib.optional secure ":443";
          defaultText = lib.literalExpression ''if tls.certificate == null then [ ] else [ ":443" ]'';
          description = "Where files are served by TLS: HTTP/1.1, HTTP/2 and HTTP/3.";
        };
        admin = mkOption {
          type = address.type;
          default = "127.0.0.1:8091";
          description = "Where health and metrics are answered. Never opened in the firewall.";
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
      tls = {
        certificate = mkOption {
          type = types.nullOr (types.strMatching "/.+");
          default = null;
          example = "/var/lib/acme/files.example/fullchain.pem";
          description = ''
            The certificate and those that signed it, in PEM. systemd hands it over when the service starts
            (`LoadCredential=`), so restart it when the certificate was renewed.
          '';
        };
        key = mkOption {
          type = types.nullOr (types.strMatching "/.+");
          default = null;
          example = "/var/lib/acme/files.example/key.pem";
          description = "The certificate's private key, in PEM: a file on the box, readable by root alone.";
        };
      };

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
    linerate.services.files = {
      inherit settings;
      tcpPorts = address.ports (cfg.settings.listen ++ cfg.settings.tls-listen);
      udpPorts = mkIf (!(cfg.settings.no-http3 or false)) (address.ports cfg.settings.tls-listen);
      readyUrl = mkIf (address.isTcp cfg.settings.admin) "${address.url cfg.settings.admin}/readyz";
    };
    networking.firewall = mkIf cfg.openFirewall {
      allowedTCPPorts = config.linerate.services.files.tcpPorts;
      allowedUDPPorts = config.linerate.services.files.udpPorts;
    };
    assertions = [
      {
        assertion = secure == (cfg.tls.key != null);
        message = "services.linerate.files.tls: a certificate and its key go together.";
      }
      {
        assertion = cfg.settings.tls-listen == [ ] || secure;
        message = "services.linerate.files.settings.tls-listen: TLS needs tls.certificate and tls.key.";
      }
    ];

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

    systemd.services.${unit} = lib.recursiveUpdate base {
      requires = lib.optionals cfg.socketActivation (
        map (name: "${unit}-${name}.socket") (lib.attrNames sockets)
      );
      reloadTriggers = lib.optional (cfg.rules != { }) rules;
      serviceConfig = {
        ExecStart = "${lib.getExe cfg.package} serve --config ${file}";
        ExecReload = "${lib.getExe' pkgs.coreutils "kill"} -HUP $MAINPID";
        DynamicUser = true;
        SupplementaryGroups = [ "linerate-files" ];
        LoadCredential = lib.optionals secure [
          "certificate:${cfg.tls.certificate}"
          "key:${cfg.tls.key}"
        ];
        # It asks the kernel whether a file is in memory (cachestat), which systemd's group does not have.
        SystemCallFilter = base.serviceConfig.SystemCallFilter ++ [ "cachestat" ];
        # No MemoryMax: pages of the files it sends count as its memory, and the kernel takes them back itself.
      };
    };
  };
}
