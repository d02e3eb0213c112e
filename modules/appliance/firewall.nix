# nftables. The services' ports are answered without connection tracking: a connection that has ended stays in that
# table for 120 s, so 2,200 new connections a second fill its 262,144 entries (kernel, nf_conntrack-sysctl).
{ config, lib, ... }:
let
  inherit (lib) mkIf;
  cfg = config.linerate.appliance;
  services = lib.attrValues config.linerate.services;
  rules =
    protocol: direction: ports:
    lib.optionalString (ports != [ ]) ''
      ${protocol} ${direction} { ${
        lib.concatMapStringsSep ", " toString (lib.sort lib.lessThan (lib.unique ports))
      } } notrack
    '';
  both =
    direction:
    rules "tcp" direction (lib.concatMap (service: service.tcpPorts) services)
    + rules "udp" direction (lib.concatMap (service: service.udpPorts) services);
in
{
  config = mkIf cfg.enable {
    networking.nftables.enable = lib.mkDefault true;
    networking.firewall = {
      enable = lib.mkDefault true;
      # A flood would write a line for each packet.
      logRefusedConnections = lib.mkDefault false;
    };
    warnings =
      lib.optional (!config.networking.nftables.enable && services != [ ])
        "linerate.appliance: networking.nftables is off, so connections of the services are tracked, of which the kernel holds 262,144; give it a larger net.netfilter.nf_conntrack_max.";

    networking.nftables.tables.linerate = mkIf (services != [ ]) {
      family = "inet";
      content = ''
        chain prerouting {
          type filter hook prerouting priority raw; policy accept;
          ${both "dport"}
        }
        chain output {
          type filter hook output priority raw; policy accept;
          ${both "sport"}
        }
      '';
    };
  };
}
