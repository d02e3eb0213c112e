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
  # The program that announces the service address isn't a service itself.
  servicesOf = node: lib.attrValues (removeAttrs node.services [ "fleet" ]);

  # What follows are the rules of pkgs/linerate/src/fleet/settings.rs, which refuses a file as a whole.
  branch = types.addCheck (types.strMatching "[A-Za-z0-9][A-Za-z0-9._-]{0,99}") (
    name: !(lib.hasInfix ".." name || lib.hasSuffix "." name || lib.hasSuffix ".lock" name)
  );
  # A month at most.
  span = types.addCheck (types.strMatching "[0-9]{1,7}[smhd]") (
    text:
    let
      seconds = {
        s = 1;
        m = 60;
        h = 60 * 60;
        d = 24 * 60 * 60;
      };
      unit = lib.substring (lib.stringLength text - 1) 1 text;
    in
    lib.toIntBase10 (lib.removeSuffix unit text) * seconds.${unit} <= 31 * seconds.d
  );
  maxNodes = 1000;
  maxServices = 16;
  branches = [ cfg.source ] ++ cfg.names;
  unknown = lib.subtractLists [
    "cacert"
    "max-error-percent"
    "node"
    "repository"
    "source"
    "waves"
    "well-for"
  ] (lib.attrNames cfg.settings);
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
      type = branch;
      default = "main";
      description = "The branch that the first wave is promoted to.";
    };

    names = mkOption {
      type = types.nonEmptyListOf branch;
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
            type = span;
            default = "30m";
            description = "How long a wave has to be well before the next is promoted: 31 days at most.";
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
          services = servicesOf node;
        }
        // lib.optionalAttrs (node.machine != null) { inherit (node) machine; }
      ) followers;
    };
    environment.systemPackages = [
      config.linerate.packages.linerate
      pkgs.git
    ];

    assertions = [
      {
        assertion = lib.unique branches == branches;
        message = "linerate.fleet.waves: each branch is there once, in source and in names.";
      }
      {
        assertion = unknown == [ ];
        message = "linerate.fleet.waves.settings: linerate fleet has no setting ${toString unknown}.";
      }
      {
        assertion = lib.length (lib.attrNames followers) <= maxNodes;
        message = "linerate.fleet.nodes: ${toString maxNodes} at most may have a wave.";
      }
    ]
    ++ lib.concatLists (
      lib.mapAttrsToList (name: node: [
        {
          assertion = lib.elem node.wave cfg.names;
          message = "linerate.fleet.nodes.${name}.wave: ${node.wave} is none of linerate.fleet.waves.names.";
        }
        {
          assertion = builtins.match "[^[:cntrl:]]{1,100}" name != null;
          message = "linerate.fleet.nodes: ${name} is to be a name of 1 to 100 characters.";
        }
        {
          assertion = servicesOf node != [ ] && lib.length (servicesOf node) <= maxServices;
          message = "linerate.fleet.nodes.${name}.services: who follows a wave is judged by 1 to ${toString maxServices} services besides `fleet`.";
        }
      ]) followers
    );
  };
}
