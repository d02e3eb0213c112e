# What all hosts here have in common.
{ lib, ... }:
{
  nixpkgs.hostPlatform = "x86_64-linux";
  system.stateVersion = "26.05";
  # Root logs in with a key.
  users.allowNoPasswordLogin = true;

  linerate = {
    appliance.enable = true;
    tuning.enable = true;
  };

  services.linerate = {
    links = {
      enable = true;
      openFirewall = true;
      settings.public-url = lib.mkDefault "http://localhost";
    };
    files = {
      enable = true;
      openFirewall = true;
    };
  };
}
