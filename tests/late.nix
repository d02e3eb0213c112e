# The host to try, with addresses that its card does not have yet when it boots, and the API's database on another host,
# the machine `visitor`, under a URL that is a secret.
{ lib, ... }:
{
  services.linerate = {
    links.settings.listen = [ "192.168.1.1:80" ];
    api = {
      settings.listen = [ "192.168.1.1:8100" ];
      secrets.database-url = "/var/lib/secrets/database-url";
    };
  };
  # Less than what comes late takes.
  linerate.appliance.health.patience = lib.mkForce 45;
}
