# Who built a version, and from what: a file beside the update, for whoever wants to know before releasing it (SLSA,
# in-toto).
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.linerate.appliance.image.provenance;
in
{
  options.linerate.appliance.image.provenance = {
    builder = mkOption {
      type = types.nullOr (types.strMatching "[a-z][a-z0-9+.-]*:[^[:space:]]+");
      default = null;
      example = "https://builds.example/linerate/release";
      description = ''
        Who builds the image, as a URI that its users know and trust (SLSA's `builder.id`): a builder is one that others
        cannot stand in for. `ID_VERSION.provenance.json` then is beside the update, and in its signed manifest. Null: no
        such file.
      '';
    };

    source = mkOption {
      type = types.nullOr (types.strMatching "[a-z][a-z0-9+.-]*:[^[:space:]]+");
      default = null;
      example = lib.literalExpression ''"git+https://git.example/boxes?rev=''${self.rev}"'';
      description = "Of which sources, as a URI with their commit. Null: not said.";
    };

    flakeLock = mkOption {
      type = types.path;
      default = ../../../flake.lock;
      defaultText = lib.literalMD "linerate's own `flake.lock`";
      description = "What the inputs were: the `flake.lock` of the flake that has the host.";
    };
  };

  config.assertions = [
    {
      assertion = cfg.source != null -> cfg.builder != null;
      message = "linerate.appliance.image.provenance.source: say who builds, too: linerate.appliance.image.provenance.builder.";
    }
  ];
}
