# A fleet of boxes: its members, the service address they share, and where all of them are monitored.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.linerate.fleet;
  # As in pkgs/linerate/src/fleet/settings.rs.
  url = types.strMatching "https?://[][A-Za-z0-9.:_-]+";
in
{
  imports = [
    ../shared.nix
    ./address.nix
    ./monitor.nix
    ./waves.nix
  ];

  options.linerate.fleet = {
    nodes = mkOption {
      default = { };
      description = "The boxes of the fleet: those that `monitor` and `waves` of this host look at.";
      type = types.attrsOf (
        types.submodule {
          options = {
            wave = mkOption {
              type = types.nullOr types.str;
              default = null;
              example = "canary";
              description = "The branch that the box follows: one of `linerate.fleet.waves.names`.";
            };
            services = mkOption {
              type = types.attrsOf url;
              default = { };
              example = {
                links = "http://10.0.0.1:8081";
              };
              description = ''
                The URLs of its services' admin listeners, by the names `links`, `files`, `api`, `console` and `fleet`.
                They must be reachable from here, and from nowhere else.
              '';
            };
            machine = mkOption {
              type = types.nullOr url;
              default = null;
              example = "http://10.0.0.1:9100";
              description = "The URL of its node_exporter, which also reports the findings of `linerate doctor`.";
            };
          };
        }
      );
    };

    generation = mkOption {
      type = types.nullOr (types.strMatching "[[:graph:]]{1,128}");
      default = config.system.configurationRevision or null;
      defaultText = lib.literalExpression "config.system.configurationRevision";
      example = lib.literalExpression "self.rev or self.dirtyRev or null";
      description = ''
        What this host was built from, as its services report it in `linerate_build_info`. Waves compare it with their
        branches, so with waves it must be a commit. Null: unknown.
      '';
    };

    wave = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "canary";
      description = "The branch of `flake` that this host is updated from every night. Null: `linerate.appliance.update.flake` says where from.";
    };

    flake = mkOption {
      type = types.str;
      default = "";
      example = "git+https://git.example/boxes";
      description = "The repository whose branches are the waves, with `wave`.";
    };
  };

  config = lib.mkMerge [
    {
      environment.etc = lib.mkIf (cfg.generation != null) {
        "linerate/generation".text = cfg.generation + "\n";
      };
      assertions = [
        {
          assertion = cfg.wave != null -> cfg.flake != "";
          message = "linerate.fleet.wave: set linerate.fleet.flake, the repository that ${toString cfg.wave} is a branch of.";
        }
      ];
    }
    (lib.optionalAttrs (options.linerate ? appliance) {
      linerate.appliance.update.flake = lib.mkIf (cfg.wave != null) (
        lib.mkDefault "${cfg.flake}${
          if lib.hasInfix "?" cfg.flake then "&" else "?"
        }ref=${toString cfg.wave}"
      );
    })
  ];
}
