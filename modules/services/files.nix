# The file server.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    literalExpression
    mkAfter
    mkEnableOption
    mkIf
    mkOption
    types
    ;
  cfg = config.services.linerate.files;
  shared = import ./options.nix { inherit config lib pkgs; } "files";
  toml = pkgs.formats.toml { };
  state = "/var/lib/linerate-files";
  hasOrigin = cfg.settings.origin != null;
  inherit (config.systemd.services.linerate-files) reloadIfChanged serviceConfig;

  hidden = import ./hidden.nix { inherit lib; };
  # What the service reads, by the setting that names it.
  places =
    lib.optionalAttrs (!hasOrigin) { root = "${cfg.settings.root}"; }
    // lib.optionalAttrs (cfg.settings ? rules) { rules = "${cfg.settings.rules}"; };

  # Rules that make no sense fail the build, and not the service.
  rules =
    let
      file = toml.generate "linerate-files-rules.toml" cfg.rules;
    in
    pkgs.runCommand "linerate-files-rules" { } ''
      ${lib.getExe (cfg.package.generic or cfg.package)} check ${file}
      cp ${file} $out
    '';
in
{
  imports = [ ./daemon.nix ];

  options.services.linerate.files = {
    enable = mkEnableOption "linerate-files, a file server";
    package = shared.package "linerate-files";
    inherit (shared)
      openFirewall
      secrets
      socketActivation
      workers
      ;
    tls = import ./tls-options.nix { inherit lib; } cfg.tls;

    settings = shared.settings "linerate-files serve" {
      listen = shared.listen [ ":8090" ];
      admin = shared.admin "127.0.0.1:8091";
      drain-timeout = shared.drain-timeout 30;
      inherit (shared)
        access-log
        backlog
        handover
        max-connections
        otlp
        tls-listen
        trusted-proxy
        ;
      root = mkOption {
        type = types.path;
        default = state;
        description = ''
          The directory whose files are served; nothing outside it is. The default directory is created, and the group
          `linerate-files` may write to it.
        '';
      };
      open-files = mkOption {
        type = types.ints.positive;
        default = 16384;
        description = "Files that all workers together keep open. The program's own default is for small machines.";
      };
      origin = mkOption {
        type = types.nullOr (types.strMatching "s3://.+");
        default = null;
        example = "s3://my-site/public";
        description = ''
          A bucket whose objects are served instead of the directory, through a cache on disk. Only with this option may
          the service write the cache and resolve host names.
        '';
      };
      origin-cache = mkOption {
        type = types.nullOr types.path;
        default = if hasOrigin then "/var/cache/linerate-files" else null;
        defaultText = literalExpression ''if settings.origin != null then "/var/cache/linerate-files" else null'';
        description = "The directory of that cache.";
      };
      origin-cache-bytes = mkOption {
        type = types.nullOr types.ints.positive;
        default = null;
        example = 107374182400;
        description = "The most bytes in it. The program's own default is 10 GiB.";
      };
    };

    originCredentials = mkOption {
      # A string, since a path would be copied into the store.
      type = types.nullOr (types.strMatching "/.+");
      default = null;
      example = "/var/lib/secrets/s3";
      description = ''
        The file on the host with `aws_access_key_id` and `aws_secret_access_key` for the origin, as
        `~/.aws/credentials` has them; systemd hands it to the service alone (`LoadCredential=`). On EC2 the role of the
        instance takes its place.
      '';
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
        Rules for paths: caching, header fields, listings, error pages. They are checked when the system is built, and a
        change needs no restart.
      '';
    };
  };

  config = mkIf cfg.enable {
    linerate.services.files = {
      takesOver = true;
      description = "File server";
      # Each connection may use a pipe in addition to its socket.
      openFiles = 2 * cfg.settings.max-connections + cfg.settings.open-files + 4096;
      derived =
        lib.optionalAttrs (cfg.rules != { }) { rules = "/etc/linerate/files-rules.toml"; }
        // lib.optionalAttrs (cfg.originCredentials != null) {
          origin-credentials = "/run/linerate-files/credentials/origin";
        };
    };

    environment.etc."linerate/files-rules.toml" = mkIf (cfg.rules != { }) { source = rules; };

    systemd.services.linerate-files = {
      # Either of the two triggers causes a reload.
      restartTriggers = mkIf (cfg.rules != { } && reloadIfChanged) [ rules ];
      reloadTriggers = mkIf (cfg.rules != { } && !reloadIfChanged) [ rules ];
      # A disk may be mounted late, such as another machine's; without it, every file would be missing.
      unitConfig.RequiresMountsFor = lib.attrValues places;
      serviceConfig = {
        # With RestrictSUIDSGID, openat2 fails with ENOSYS. The server needs openat2 to stay below its root. It can't
        # create files anywhere.
        RestrictSUIDSGID = false;
        # The server calls cachestat to find out whether a file is in memory; systemd's group of system calls lacks it.
        # Of the kernel's asynchronous I/O, the server only uses these two io_uring calls: no worker registers anything
        # with its ring.
        SystemCallFilter = mkAfter [
          "cachestat"
          "~@aio"
          "io_uring_setup"
          "io_uring_enter"
          # Threads that wait for the disk take no CPU from workers; RestrictRealtime allows only such policies.
          "sched_setscheduler"
        ];
        # No MemoryMax: pages of the files it sends count as its memory, and the kernel reclaims them itself.
      }
      // lib.optionalAttrs (cfg.originCredentials != null) {
        LoadCredential = [ "origin:${cfg.originCredentials}" ];
      }
      // lib.optionalAttrs (lib.any hidden.home (lib.attrValues places)) {
        # It goes before the sandbox's default, and a host's own value before it.
        ProtectHome = lib.mkOverride 900 "read-only";
      }
      // lib.optionalAttrs hasOrigin {
        # The only place it writes to.
        CacheDirectory = "linerate-files";
        CacheDirectoryMode = "0700";
        ReadWritePaths = lib.optional (
          cfg.settings.origin-cache != "/var/cache/linerate-files"
        ) cfg.settings.origin-cache;
        # glibc asks the kernel for the machine's addresses before it looks up a name.
        RestrictAddressFamilies = [ "AF_NETLINK" ];
      };
    };

    assertions = lib.mapAttrsToList (setting: place: {
      assertion = !hidden.temporary place || serviceConfig.PrivateTmp == false;
      message = "services.linerate.files.settings.${setting}: the service has a /tmp and a /var/tmp of its own, and would not see ${place}.";
    }) places;

    # Whoever puts files there is in this group; the service itself only reads.
    systemd.tmpfiles.settings = mkIf (cfg.settings.root == state) {
      "10-linerate-files".${state}.d = {
        mode = "2775";
        user = "root";
        group = "linerate-files";
      };
    };

    # With it, the kernel encrypts HTTP/1.1 over TLS, and bodies are sent as without TLS. The service couldn't load it.
    boot.kernelModules = mkIf (cfg.settings.tls-listen != [ ]) [ "tls" ];
  };
}
