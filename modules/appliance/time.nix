# Expiry of links, certificates and logs depend on the clock.
{ config, lib, ... }:
let
  cfg = config.linerate.appliance;
in
{
  config = lib.mkIf cfg.enable {
    # Instead of timesyncd, which NixOS turns off if chrony is on.
    services.chrony.enable = lib.mkDefault true;
    time.timeZone = lib.mkDefault "UTC";
  };
}
