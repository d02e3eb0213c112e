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
  linerate.packages = lib.mkDefault ((packagesOf pkgs).${config.linerate.cpu} or { });
}
