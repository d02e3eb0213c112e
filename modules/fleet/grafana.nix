# A Grafana dashboard from an entry of queries.nix: two panels per row, each with a line for every set of labels.
{ lib }:
uid:
{ title, panels }:
{
  uid = "linerate-${uid}";
  inherit title;
  tags = [ "linerate" ];
  timezone = "browser";
  editable = false;
  # From Grafana 10; later ones read it too.
  schemaVersion = 38;
  refresh = "30s";
  time = {
    from = "now-6h";
    to = "now";
  };
  templating.list = [
    {
      name = "datasource";
      label = "Prometheus";
      type = "datasource";
      query = "prometheus";
    }
  ];
  panels = lib.imap0 (index: panel: {
    id = index + 1;
    type = "timeseries";
    inherit (panel) title;
    description = panel.alert.summary or "";
    datasource = {
      type = "prometheus";
      uid = "\${datasource}";
    };
    gridPos = {
      h = 8;
      w = 12;
      x = 12 * lib.mod index 2;
      y = 8 * (index / 2);
    };
    fieldConfig = {
      defaults = {
        inherit (panel) unit;
        min = 0;
      };
      overrides = [ ];
    };
    targets = [
      {
        refId = "A";
        expr = panel.query;
        legendFormat = lib.concatMapStringsSep " " (label: "{{${label}}}") panel.by;
      }
    ];
  }) panels;
}
