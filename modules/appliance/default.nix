# The box itself: it contains only what the services need, and opens only the ports that are configured.
{ lib, ... }:
{
  imports = [
    ../shared.nix
    ./base.nix
    ./closure.nix
    ./firewall.nix
    ./grow.nix
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
