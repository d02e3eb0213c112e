# The host to try, with addresses that its card doesn't have yet at boot, and the API's database on another host, the
# machine `visitor`, under a URL that is a secret.
{ lib, ... }:
{
  services.linerate = {
    links.settings.listen = [ "192.168.1.1:80" ];
    api = {
      settings.listen = [ "192.168.1.1:8100" ];
      secrets.database-url = "/var/lib/secrets/database-url";
    };
  };
  # Shorter than the time that the late parts take.
  linerate.appliance.health.patience = lib.mkForce 45;
  # Once the database is there, the API may not wait for longer than that before it tries again.
  systemd.services.linerate-api.serviceConfig.RestartMaxDelaySec = lib.mkForce 2;
}
