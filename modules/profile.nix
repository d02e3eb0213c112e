# What the host should be like once it runs, for `linerate doctor`: each module adds its part, and the whole is
# /etc/linerate/profile.json. Its format is the type in pkgs/linerate/src/profile.rs.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  json = pkgs.formats.json { };
in
{
  options.linerate.profile = lib.mkOption {
    inherit (json) type;
    default = { };
    apply = lib.filterAttrsRecursive (_: value: value != null);
    description = ''
      The profile that `linerate doctor --profile /etc/linerate/profile.json` compares the running host with. The
      modules fill it in. Values that are null or absent are not checked.
    '';
  };

  config.environment.etc."linerate/profile.json".source =
    json.generate "profile.json" config.linerate.profile;
}
