# The default programs of the services: this flake's, for the host's CPU.
{ packagesOf }:
{
  config,
  lib,
  pkgs,
  ...
}:
{
  # The same module however often it is imported.
  key = "linerate/packages";
  imports = [ ./shared.nix ];
  linerate.packages =
    let
      packages = packagesOf pkgs;
      sets = if config.linerate.guided then packages.guided else packages;
    in
    lib.mkDefault (sets.${config.linerate.cpu} or { });
}
