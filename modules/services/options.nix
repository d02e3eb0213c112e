# The options that every service has.
{
  config,
  lib,
  pkgs,
}:
{
  # Its short name: `links`.
  name,
  # What `mkEnableOption` says.
  what,
  # Options of settings that have a type here; any other setting is passed on as it is.
  settings,
}:
let
  inherit (lib)
    literalExpression
    mkEnableOption
    mkOption
    types
    ;
in
{
  enable = mkEnableOption what;

  package = mkOption {
    type = types.package;
    default = config.linerate.packages.${name};
    defaultText = literalExpression "config.linerate.packages.${name}";
    description = "The package with `linerate-${name}`.";
  };

  openFirewall = mkOption {
    type = types.bool;
    default = false;
    description = "Whether visitors may reach the ports of `settings.listen` through the firewall.";
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
      Whether systemd listens for the service, so that connections wait while it restarts instead of being
      refused. All workers then share one socket, where each would have one of its own (`SO_REUSEPORT`).
    '';
  };

  settings = mkOption {
    default = { };
    description = ''
      What `linerate-${name} serve --help` lists, named as the flags without their dashes in front.
    '';
    type = types.submodule {
      freeformType = (pkgs.formats.toml { }).type;
      options = settings;
    };
  };
}
