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
    description = "Whether the firewall lets visitors reach the service's ports.";
  };

  workers = mkOption {
    type = types.nullOr types.ints.positive;
    default = null;
    description = ''
      Number of worker threads. By default one for each CPU that the service may use: those of
      `linerate.tuning.cpu.serviceCpus`, or all.
    '';
  };

  socketActivation = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether systemd listens for the service, also before it starts and while it is stopped. The first connection then
      starts it, and Unix sockets keep existing during a restart. Clients over TCP and UDP wait during a restart with
      and without this option. All workers share one socket, instead of one each (`SO_REUSEPORT`).
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
      Settings whose values are secret, each as the path of a file on the host that contains the value. systemd passes
      the file to the service alone (`LoadCredential=`). These override `settings`.
    '';
  };

  # The command whose `--help` lists the settings, and the settings with a type here; others are passed on unchanged.
  settings =
    command: options:
    mkOption {
      default = { };
      description = ''
        The flags that `${command} --help` lists, without their leading dashes.
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
      description = "Addresses for visitors, over HTTP without TLS.";
    };

  tls-listen = mkOption {
    type = types.listOf address.type;
    default = lib.optional config.services.linerate.${name}.tls.enable ":443";
    defaultText = literalExpression ''lib.optional tls.enable ":443"'';
    description = "Addresses for visitors over TLS: HTTP/1.1, HTTP/2 and HTTP/3.";
  };

  admin =
    default:
    mkOption {
      type = address.type;
      inherit default;
      description = "The admin listener's address: for operators, health and metrics. The firewall never opens its port.";
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
      Addresses or networks of proxies in front. The client's address is then the one that they report in `Forwarded` or
      `X-Forwarded-For`, or with `proxy-protocol` in the PROXY header of version 2 with which every connection must
      begin. Reports from other addresses are ignored.
    '';
  };

  access-log = mkOption {
    type = types.nullOr types.str;
    default = null;
    example = "/var/log/linerate-${name}/access.log";
    description = ''
      File for a line of JSON about each request, or with `access-log-sample` about one request in so many; `-` is the
      journal. The service may write below `/var/log/linerate-${name}`, which exists for it; for a file elsewhere, set
      `ReadWritePaths=` in its unit. After you rename the file, run `systemctl kill -s HUP linerate-${name}` to create a
      new one.
    '';
  };

  otlp = mkOption {
    type = types.nullOr (types.strMatching "http://.+");
    default = null;
    example = "http://127.0.0.1:4318";
    description = ''
      URL of an OpenTelemetry collector that gets a span of each request, by OTLP over HTTP. `otlp-sample` reduces this
      to one request in so many, among those whose callers do not say whether they are traced. NixOS has a collector as
      `services.opentelemetry-collector`.
    '';
  };

  audit-log = mkOption {
    type = types.nullOr types.str;
    default = null;
    example = "/var/log/linerate-${name}/audit.log";
    description = ''
      File for a line of JSON about each write through the API: who wrote what. It is like `access-log`, and may be the
      same file.
    '';
  };

  # In seconds.
  drain-timeout =
    default:
    mkOption {
      type = types.ints.unsigned;
      inherit default;
      description = "How long running requests may take when the service stops, in seconds.";
    };

  handover = mkOption {
    type = types.nullOr (types.strMatching "/.+");
    default = "/run/linerate-${name}/handover";
    description = ''
      Unix socket by which a new process takes over from the running one at a reload. With null, a change of the program
      or its settings needs a restart.
    '';
  };
}
