# nftables. The services' ports are answered without connection tracking: a connection that has ended stays in that
# table for 120 s, so 2,200 new connections a second fill its 262,144 entries (kernel, nf_conntrack-sysctl).
{ config, lib, ... }:
let
  inherit (lib) mkIf;
  cfg = config.linerate.appliance;
  services = lib.attrValues config.linerate.services;
  rule =
    match: ports:
    lib.optionalString (ports != [ ]) ''
      ${match} { ${
        lib.concatMapStringsSep ", " toString (lib.sort lib.lessThan (lib.unique ports))
      } } notrack
    '';
  tcp = lib.concatMap (service: service.tcpPorts) services;
  udp = lib.concatMap (service: service.udpPorts) services;
  both = direction: rule "tcp ${direction}" tcp + rule "udp ${direction}" udp;
in
{
  config = mkIf cfg.enable {
    networking.nftables.enable = lib.mkDefault true;
    networking.firewall = {
      enable = lib.mkDefault true;
      # A flood would write a line for each packet.
      logRefusedConnections = lib.mkDefault false;
      # Those about connections that are not tracked. The like of ICMPv6 are let in anyway.
      extraInputRules = mkIf (
        config.networking.nftables.enable && services != [ ]
      ) "icmp type destination-unreachable accept";
    };
    warnings =
      lib.optional (!config.networking.nftables.enable && services != [ ])
        "linerate.appliance: networking.nftables is off, so connections of the services are tracked, of which the kernel holds 262,144; give it a larger net.netfilter.nf_conntrack_max.";

    networking.nftables.tables.linerate = mkIf (services != [ ]) {
      family = "inet";
      content = ''
        chain prerouting {
          type filter hook prerouting priority raw; policy accept;
          # What is forwarded, such as a container's connection to somebody's port 80, needs tracking for NAT.
          fib daddr type local jump services
        }
        chain services {
          ${both "dport"}
          # Without errors such as that a packet was too big, a connection hangs; the firewall drops errors about
          # connections that tracking does not know. They quote the packet: its source port comes after 8 bytes of ICMP
          # and the 20 or 40 of its IP header.
          ${rule "icmp type destination-unreachable @th,224,16" (tcp ++ udp)}
          ${rule "icmpv6 type { destination-unreachable, packet-too-big } @th,384,16" (tcp ++ udp)}
        }
        chain output {
          type filter hook output priority raw; policy accept;
          ${both "sport"}
        }
      '';
    };
  };
}
