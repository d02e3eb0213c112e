{ companions, visitor, ... }:
{
  nodes = {
    box = companions;
    visitor =
      { pkgs, ... }:
      {
        imports = [ visitor ];
        environment.systemPackages = [
          pkgs.openssl
          pkgs.pebble
        ];
        networking.firewall.enable = false;
        services.openssh.enable = true;
      };
  };
}
