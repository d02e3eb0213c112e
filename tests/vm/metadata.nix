{ aws, visitor, ... }:
{
  nodes = {
    box = aws;
    visitor =
      { pkgs, ... }:
      {
        imports = [ visitor ];
        environment.systemPackages = [ pkgs.openssh ];
        networking.firewall.enable = false;
      };
  };
}
