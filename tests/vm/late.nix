{ late, visitor, ... }:
{
  nodes = {
    box = {
      imports = [ late ];
      # The card whose cable the test pulls. The driver's own keeps its carrier.
      linerate.tuning.nic.eth.mac = "52:54:00:12:01:01";
    };
    visitor =
      { pkgs, ... }:
      {
        imports = [ visitor ];
        environment.systemPackages = [ pkgs.postgresql ];
        networking.firewall.enable = false;
      };
  };
}
