# Which programs the services run unless told otherwise: this flake's, for the CPU of the host.
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
