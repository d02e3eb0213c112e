# Expiry of links, certificates and logs go by the clock.
{ config, lib, ... }:
let
  cfg = config.linerate.appliance;
in
{
  config = lib.mkIf cfg.enable {
    services.chrony.enable = true;
    services.timesyncd.enable = false;
    time.timeZone = lib.mkDefault "UTC";
  };
}
