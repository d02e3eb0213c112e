# Metrics for Prometheus: the machine's, `linerate doctor`'s findings, and the database's. The services have theirs on
# their admin listeners.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  exporters = config.services.prometheus.exporters;
  # The findings of `linerate doctor`, for the textfile collector.
  findings = "/run/linerate-metrics";
  # Whether any service has certificates; the doctor reads these.
  tls = lib.any (service: service.settings ? cert || service.settings ? admin-cert) (
    lib.attrValues config.linerate.services
  );
  # Exporters are in Go, whose listeners take 0.0.0.0 for all addresses of IPv6 too.
  address = if cfg.metrics.interface == null then "127.0.0.1" else "0.0.0.0";
  addresses = import ../services/address.nix { inherit lib; };
  # This host's addresses at which services say whether they are ready, besides the loopback's.
  own = lib.filter (one: !lib.hasPrefix "127." one && one != "::1") (
    lib.unique (
      map (admin: lib.removePrefix "[" (lib.removeSuffix "]" (addresses.host admin))) (
        lib.filter (admin: addresses.isTcp admin && !addresses.isEverywhere admin) (
          # Not from their settings, which name sockets with `socketActivation`.
          map (one: one.address) (
            lib.filter (one: lib.hasSuffix ".settings.admin" one.option) (
              lib.concatMap (service: service.addresses) (lib.attrValues config.linerate.services)
            )
          )
        )
      )
    )
  );
in
{
  options.linerate.appliance.metrics = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether the machine's metrics are at port 9100, and PostgreSQL's, if it runs, at port 9187.";
    };

    interface = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "eno1";
      description = "The only interface on which these ports are reachable. Null: only from this machine.";
    };
  };

  config = mkIf (cfg.enable && cfg.metrics.enable) {
    services.prometheus.exporters = {
      node = {
        enable = lib.mkDefault true;
        listenAddress = lib.mkDefault address;
        enabledCollectors = [
          "interrupts"
          "softirqs"
          "textfile"
        ];
        extraFlags = [ "--collector.textfile.directory=${findings}" ];
      };
      postgres = mkIf config.services.postgresql.enable {
        enable = lib.mkDefault true;
        listenAddress = lib.mkDefault address;
        runAsLocalSuperUser = lib.mkDefault true;
      };
    };
    systemd.services.linerate-doctor = {
      description = "What keeps this host from its line rate, for Prometheus";
      serviceConfig =
        import ../sandbox.nix {
          # CAP_NET_ADMIN reads the cards' rings and channels. CAP_DAC_READ_SEARCH reads certificates, which not every
          # user may read.
          capabilities = [ "CAP_NET_ADMIN" ] ++ lib.optional tls "CAP_DAC_READ_SEARCH";
        }
        // {
          Type = "oneshot";
          ExecStart = "${lib.getExe config.linerate.packages.linerate} doctor --profile /etc/linerate/profile.json --textfile ${findings}/doctor.prom";
          # The doctor exits with 3 if it found a problem. The file reports the problem.
          SuccessExitStatus = 3;
          RuntimeDirectory = [
            "linerate-doctor"
            (baseNameOf findings)
          ];
          RuntimeDirectoryPreserve = true;
          # The exporter reads the file as another user.
          UMask = "0022";
          MemoryMax = "128M";
          # The doctor reads /proc and /sys, queries the kernel over netlink, and asks services whether they are ready.
          ProcSubset = "all";
          ProtectProc = "default";
          RestrictAddressFamilies = [
            "AF_INET"
            "AF_INET6"
            "AF_NETLINK"
            "AF_UNIX"
          ];
          IPAddressDeny = "any";
          IPAddressAllow = [ "localhost" ] ++ own;
          SystemCallFilter = [
            "@system-service"
            "~@privileged @resources"
            "adjtimex"
            # The C library uses this for adjtimex.
            "clock_adjtime"
          ];
          # ProtectClock would also forbid the query whether the clock is synchronised.
          ProtectClock = false;
        }
        // lib.optionalAttrs tls {
          # systemd hides a unit's credentials from all other units. This mount makes them visible to the doctor.
          BindReadOnlyPaths = "-/run/credentials:/run/linerate-doctor/credentials";
        };
    };
    systemd.timers.linerate-doctor = {
      description = "Look at this host every minute";
      wantedBy = [ "timers.target" ];
      timerConfig = {
        OnBootSec = "2min";
        OnUnitActiveSec = "1min";
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
