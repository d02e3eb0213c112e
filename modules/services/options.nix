# Options that services have in common, which they pick by name.
{
  config,
  lib,
  pkgs,
}:
# The service's short name: `links`.
name:
let
  inherit (lib)
    literalExpression
    mkOption
    mkPackageOption
    types
    ;
  address = import ./address.nix { inherit lib; };
in
{
  # The package in this project that has the program: `linerate-links`.
  package =
    package:
    mkPackageOption config.linerate.packages package {
      default = lib.removePrefix "linerate-" package;
      pkgsText = "config.linerate.packages";
    };

  openFirewall = mkOption {
    type = types.bool;
    default = false;
    description = "Whether visitors may reach the ports they are answered on through the firewall.";
  };

  workers = mkOption {
    type = types.nullOr types.ints.positive;
    default = null;
    description = ''
      Threads that answer. By default one for each CPU that the service may use: those of
      `linerate.tuning.cpu.serviceCpus`, or all.
    '';
  };

  socketActivation = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether systemd listens for the service, from before it starts and also while it is stopped: connections start
      it, and Unix sockets stay where they are while it restarts. Those who come by TCP and UDP wait for a restart in
      either case. All workers then share one socket, where each would have one of its own (`SO_REUSEPORT`).
    '';
  };

  secrets = mkOption {
    # A string, since a path would be copied into the store.
    type = types.attrsOf (types.strMatching "/.+");
    default = { };
    example = {
      database-url = "/var/lib/secrets/database-url";
    };
    description = ''
      Settings whose values are secret, each with the file on the host that holds it. systemd reads the file and
      hands it to the service alone (`LoadCredential=`); it counts before `settings`.
    '';
  };

  # The command whose `--help` lists the settings, and the settings with a type here; others are passed on unchanged.
  settings =
    command: options:
    mkOption {
      default = { };
      description = ''
        What `${command} --help` lists, named as the flags without their dashes in front.
      '';
      type = types.submodule {
        freeformType = (pkgs.formats.toml { }).type;
        inherit options;
      };
    };

  listen =
    default:
    mkOption {
      type = types.listOf address.type;
      inherit default;
      description = "Where visitors are answered, by HTTP without TLS.";
    };

  tls-listen = mkOption {
    type = types.listOf address.type;
    default = lib.optional config.services.linerate.${name}.tls.enable ":443";
    defaultText = literalExpression ''lib.optional tls.enable ":443"'';
    description = "Where visitors are answered by TLS: HTTP/1.1, HTTP/2 and HTTP/3.";
  };

  admin =
    default:
    mkOption {
      type = address.type;
      inherit default;
      description = "Where operators are answered, and where health and metrics are. Never opened in the firewall.";
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

  trusted-proxy = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [
      "10.0.0.0/8"
      "2001:db8::1"
    ];
    description = ''
      Proxies in front, by address or network. The client's address is what they say in `Forwarded` or
      `X-Forwarded-For`, or with `proxy-protocol` in the PROXY header of version 2 that every connection then has to
      begin with. From anybody else it is not believed.
    '';
  };

  access-log = mkOption {
    type = types.nullOr types.str;
    default = null;
    example = "/var/log/linerate-${name}/access.log";
    description = ''
      Where each request has a line of JSON, or with `access-log-sample` one in so many: a file, or `-` for the
      journal. The service may write below `/var/log/linerate-${name}`, which is made for it; a file elsewhere takes
      a `ReadWritePaths=` of its unit. After it was renamed, `systemctl kill -s HUP linerate-${name}` has it made anew.
    '';
  };

  otlp = mkOption {
    type = types.nullOr (types.strMatching "http://.+");
    default = null;
    example = "http://127.0.0.1:4318";
    description = ''
      A collector of OpenTelemetry that takes a span of each request, by OTLP over HTTP, or with `otlp-sample` of one in
      so many of those whose callers do not say whether they are traced. NixOS has one as
      `services.opentelemetry-collector`.
    '';
  };

  audit-log = mkOption {
    type = types.nullOr types.str;
    default = null;
    example = "/var/log/linerate-${name}/audit.log";
    description = ''
      Where each write by the API has a line of JSON, with who wrote what: as `access-log`, and it may be the same
      file.
    '';
  };

  # In seconds.
  drain-timeout =
    default:
    mkOption {
      type = types.ints.unsigned;
      inherit default;
      description = "How long requests under way have at the end, in seconds.";
    };

  handover = mkOption {
    type = types.nullOr (types.strMatching "/.+");
    default = "/run/linerate-${name}/handover";
    description = ''
      Where a process that takes over asks the one that serves, at a reload: with null there is none, and what changes
      takes a restart.
    '';
  };
}
