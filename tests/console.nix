# The host to try, with the console and the helpers for what it may not do itself, and with links in a PostgreSQL of its
# own.
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
