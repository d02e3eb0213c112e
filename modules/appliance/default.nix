# The box itself: it has nothing that the services don't need, and opens nothing that nobody asked for.
{ lib, ... }:
{
  imports = [
    ../shared.nix
    ./base.nix
    ./closure.nix
    ./firewall.nix
    ./health.nix
    ./image
    ./line-tables.nix
    ./metrics.nix
    ./ssh.nix
    ./time.nix
    ./update.nix
    ./user-data.nix
  ];

  options.linerate.appliance.enable = lib.mkEnableOption "the appliance: a minimal system around the services";
}
