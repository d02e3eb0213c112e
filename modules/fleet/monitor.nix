# All boxes in one place: what Prometheus scrapes, when to alert, and dashboards.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  fleet = config.linerate.fleet;
  cfg = fleet.monitor;
  json = pkgs.formats.json { };
  queries = import ./queries.nix { inherit lib; };

  # Jobs by name, each with the URLs of the nodes that have it.
  jobs = lib.zipAttrs (
    lib.mapAttrsToList (
      name: node:
      lib.mapAttrs (_: url: { inherit name node url; }) (
        lib.mapAttrs' (service: lib.nameValuePair "linerate-${service}") node.services
        // lib.optionalAttrs (node.machine != null) { linerate-machine = node.machine; }
      )
    ) fleet.nodes
  );

  scrapes = lib.mapAttrsToList (job: targets: {
    job_name = job;
    scrape_interval = cfg.interval;
    static_configs = map (
      {
        name,
        node,
        url,
      }:
      let
        parts = lib.splitString "://" url;
      in
      {
        targets = [ (lib.last parts) ];
        labels = {
          node = name;
          __scheme__ = lib.head parts;
        }
        // lib.optionalAttrs (node.wave != null) { inherit (node) wave; };
      }
    ) targets;
  }) jobs;

  rules = {
    groups = lib.mapAttrsToList (name: dashboard: {
      name = "linerate-${name}";
      rules = map (panel: {
        alert = "Linerate${panel.alert.name}";
        expr = "(${panel.query}) ${panel.alert.when}";
        for = panel.alert.wait;
        labels = { inherit (panel.alert) severity; };
        annotations = {
          inherit (panel.alert) summary;
          dashboard = "linerate-${name}";
        };
      }) (lib.filter (panel: panel ? alert) dashboard.panels);
    }) queries;
  };
in
{
  options.linerate.fleet.monitor = {
    enable = lib.mkEnableOption "Prometheus on this host, with every box of `linerate.fleet.nodes`, alert rules and dashboards";

    interval = mkOption {
      type = types.strMatching "[0-9]+(ms|s|m)";
      default = "15s";
      description = "How often boxes are asked.";
    };

    rules = mkOption {
      inherit (json) type;
      default = rules;
      defaultText = lib.literalMD "the alerts of `modules/fleet/queries.nix`";
      description = "Groups of alert rules, as Prometheus has them.";
    };

    dashboards = mkOption {
      type = types.attrsOf json.type;
      default = lib.mapAttrs (import ./grafana.nix { inherit lib; }) queries;
      defaultText = lib.literalMD "the panels of `modules/fleet/queries.nix`";
      description = "Grafana's dashboards by name, each a file in /etc/linerate/dashboards; a Grafana on this host has them too.";
    };
  };

  config = mkIf cfg.enable {
    services = {
      prometheus = {
        enable = lib.mkDefault true;
        # Whoever can reach it can read everything.
        listenAddress = lib.mkDefault "127.0.0.1";
        scrapeConfigs = scrapes;
        # A file of their own: NixOS joins `rules` to one text, and others' YAML beside our JSON is neither.
        ruleFiles = [ (json.generate "linerate-rules.json" cfg.rules) ];
      };
      # If somebody has turned it on.
      grafana.provision = {
        enable = lib.mkDefault true;
        dashboards.settings.providers = [
          {
            name = "linerate";
            options.path = "/etc/linerate/dashboards";
          }
        ];
        datasources.settings.datasources = [
          {
            name = "Prometheus";
            type = "prometheus";
            url = "http://127.0.0.1:${toString config.services.prometheus.port}";
          }
        ];
      };
    };
    environment.etc = lib.mapAttrs' (
      name: dashboard:
      lib.nameValuePair "linerate/dashboards/${name}.json" {
        source = json.generate "${name}.json" dashboard;
      }
    ) cfg.dashboards;

    assertions = [
      {
        assertion = fleet.nodes != { };
        message = "linerate.fleet.monitor: name the boxes in linerate.fleet.nodes.";
      }
    ];
  };
}
