{ late, visitor, ... }:
{
  nodes = {
    box = late;
    visitor =
      { pkgs, ... }:
      {
        imports = [ visitor ];
        environment.systemPackages = [ pkgs.postgresql ];
        networking.firewall.enable = false;
      };
  };
}
