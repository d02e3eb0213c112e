# Figures for Prometheus: the machine's, what `linerate doctor` finds, and the database's. The services have theirs
# on their admin listeners.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  exporters = config.services.prometheus.exporters;
  address = if cfg.metrics.interface == null then "127.0.0.1" else "0.0.0.0";
in
{
  options.linerate.appliance.metrics = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether the machine's own figures are at port 9100, and PostgreSQL's, if there is one, at 9187.";
    };

    interface = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "eno1";
      description = "The only interface on which they are asked for, such as one for management. Null: on this machine alone.";
    };
  };

  config = mkIf (cfg.enable && cfg.metrics.enable) {
    services.prometheus.exporters = {
      node = {
        enable = true;
        listenAddress = address;
        enabledCollectors = [
          "interrupts"
          "softirqs"
        ];
      };
      postgres = mkIf config.services.postgresql.enable {
        enable = true;
        listenAddress = address;
        runAsLocalSuperUser = true;
      };
    };
    networking.firewall.interfaces = mkIf (cfg.metrics.interface != null) {
      ${cfg.metrics.interface}.allowedTCPPorts = [
        exporters.node.port
      ]
      ++ lib.optional exporters.postgres.enable exporters.postgres.port;
    };
  };
}
