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
        Who builds the image, as a URI that its users know and trust (SLSA's `builder.id`). Nobody else may be able to
        act as this builder. The update then includes `ID_VERSION.provenance.json`, which its signed manifest lists.
        Null: no such file.
      '';
    };

    source = mkOption {
      type = types.nullOr (types.strMatching "[a-z][a-z0-9+.-]*:[^[:space:]]+");
      default = null;
      example = lib.literalExpression ''"git+https://git.example/boxes?rev=''${self.rev}"'';
      description = "The sources, as a URI with their commit. Null: not stated.";
    };

    flakeLock = mkOption {
      type = types.path;
      default = ../../../flake.lock;
      defaultText = lib.literalMD "linerate's own `flake.lock`";
      description = "The `flake.lock` of the host's flake, which names the inputs.";
    };
  };

  config.assertions = [
    {
      assertion = cfg.source != null -> cfg.builder != null;
      message = "linerate.appliance.image.provenance.source: say who builds, too: linerate.appliance.image.provenance.builder.";
    }
  ];
}
