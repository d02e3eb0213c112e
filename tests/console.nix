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
    links = {
      database.createLocally = true;
      # If every instruction is emulated, starting a session takes longer than anywhere else.
      settings.database = "postgres://linerate-links@%2Frun%2Fpostgresql/linerate-links?connect_timeout=60";
    };
  };
  # As in companions.nix.
  systemd.services.postgresql.serviceConfig.TimeoutSec = lib.mkForce 2400;
}
