# The box itself: nothing in it that the services do not need, and nothing open that nobody asked for.
{ lib, ... }:
{
  imports = [
    ../shared.nix
    ./base.nix
    ./firewall.nix
    ./health.nix
    ./ssh.nix
    ./time.nix
    ./update.nix
  ];

  options.linerate.appliance.enable = lib.mkEnableOption "the appliance: a minimal system around the services";
}
