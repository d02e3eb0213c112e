# A box in a fleet of two, with everything in modules/fleet. tests/rendered has what these hosts render to, and the
# programs that read it run in namespaces (tests/fleet).
number:
{ lib, ... }:
{
  networking.hostName = lib.mkForce "fleet-${toString number}";

  services.linerate = {
    links.settings.admin = "10.99.0.${toString number}:8081";
    files.settings.admin = "10.99.0.${toString number}:8091";
    api.settings.admin = "10.99.0.${toString number}:8101";
  };

  linerate.fleet = {
    generation = "4f2a90c1b2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7";
    wave = if number == 1 then "canary" else "wave1";
    flake = "git+https://git.example/boxes";

    nodes = lib.genAttrs [ "fleet-1" "fleet-2" ] (
      name:
      let
        host = "http://10.99.0.${lib.removePrefix "fleet-" name}";
      in
      {
        wave = if name == "fleet-1" then "canary" else "wave1";
        services = {
          links = "${host}:8081";
          files = "${host}:8091";
          api = "${host}:8101";
          fleet = "${host}:8120";
        };
        machine = "${host}:9100";
      }
    );

    # links has this address.
    address = {
      ready = [ "http://10.99.0.${toString number}:8081/readyz" ];
      bgp = {
        enable = true;
        addresses = [ "10.98.0.1" ];
        routerId = "10.99.0.${toString number}";
        asn = 65000 + number;
        interface = "e0";
        neighbors.router = {
          address = "10.99.0.254";
          asn = 65000;
        };
      };
      vrrp = {
        enable = true;
        addresses = [ "10.99.0.100" ];
        interface = "e0";
        priority = if number == 1 then 150 else 120;
      };
      nlb.enable = true;
    };

    monitor.enable = number == 1;
    waves.enable = number == 1;
  };
}
