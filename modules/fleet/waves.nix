# Waves, for `linerate fleet status` and `promote` on the host that has the repository.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  fleet = config.linerate.fleet;
  cfg = fleet.waves;
  toml = pkgs.formats.toml { };
  followers = lib.filterAttrs (_: node: node.wave != null) fleet.nodes;
in
{
  options.linerate.fleet.waves = {
    enable = lib.mkEnableOption "`linerate fleet` here, with the nodes that follow a wave in /etc/linerate/fleet.toml";

    repository = mkOption {
      type = types.strMatching "/.+";
      default = "/srv/boxes.git";
      description = "The bare git repository whose branches hosts follow.";
    };

    source = mkOption {
      type = types.str;
      default = "main";
      description = "The branch that the first wave is promoted to.";
    };

    names = mkOption {
      type = types.nonEmptyListOf types.str;
      default = [
        "canary"
        "wave1"
        "wave2"
      ];
      description = "The branches that hosts follow, in their order.";
    };

    settings = mkOption {
      type = types.submodule {
        freeformType = toml.type;
        options = {
          well-for = mkOption {
            type = types.strMatching "[0-9]+[smhd]";
            default = "30m";
            description = "How long a wave has to be well before the next is promoted.";
          };
          max-error-percent = mkOption {
            type = types.numbers.between 0 100;
            default = 1;
            description = "The share of a node's requests that may get 5xx during `well-for`, in percent.";
          };
        };
      };
      default = { };
      description = "Other settings of the file, as `pkgs/linerate/src/fleet/settings.rs` describes them.";
    };
  };

  config = mkIf cfg.enable {
    environment.etc."linerate/fleet.toml".source = toml.generate "fleet.toml" cfg.settings;
    linerate.fleet.waves.settings = {
      inherit (cfg) repository source;
      waves = cfg.names;
      node = lib.mapAttrsToList (
        name: node:
        {
          inherit name;
          inherit (node) wave;
          # The program that announces the service address isn't a service itself.
          services = lib.attrValues (removeAttrs node.services [ "fleet" ]);
        }
        // lib.optionalAttrs (node.machine != null) { inherit (node) machine; }
      ) followers;
    };
    environment.systemPackages = [
      config.linerate.packages.linerate
      pkgs.git
    ];

    assertions = lib.mapAttrsToList (name: node: {
      assertion = lib.elem node.wave cfg.names;
      message = "linerate.fleet.nodes.${name}.wave: ${node.wave} is none of linerate.fleet.waves.names.";
    }) followers;
  };
}
