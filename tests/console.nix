# The host to try, with the console, with the helpers for what the console itself may not do, and with links in a
# PostgreSQL of its own.
{ lib, ... }:
{
  services.linerate = {
    console = {
      enable = true;
      helper = true;
      filesWriter.enable = true;
    };
    links.database.createLocally = true;
  };
  # As in companions.nix.
  systemd.services.postgresql.serviceConfig.TimeoutSec = lib.mkForce 900;
}
