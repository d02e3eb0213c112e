# Expiry of links, certificates and logs depend on the clock.
{ config, lib, ... }:
let
  cfg = config.linerate.appliance;
in
{
  config = lib.mkIf cfg.enable {
    services.chrony = {
      # Instead of timesyncd, which NixOS turns off if chrony is on.
      enable = lib.mkDefault true;
      # chrony tells the kernel that the clock is synchronised only with `rtcsync`, and refuses that beside what NixOS
      # sets for trimming. Without it, `linerate doctor` would find a clock that nobody keeps, and the kernel would
      # leave the hardware's clock alone.
      enableRTCTrimming = lib.mkDefault false;
      extraConfig = lib.mkIf (!config.services.chrony.enableRTCTrimming) "rtcsync";
    };
    time.timeZone = lib.mkDefault "UTC";
  };
}
