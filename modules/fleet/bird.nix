# BIRD's configuration: routers learn the service address while `linerate fleet announce` has its protocols enabled.
{ lib }:
bgp:
let
  family = address: if lib.hasInfix ":" address then "ipv6" else "ipv4";
  length = {
    ipv4 = 32;
    ipv6 = 128;
  };
  of = wanted: lib.filter (address: family address == wanted) bgp.addresses;
  families = lib.unique (map family bgp.addresses);
  lines = lib.concatMapStrings (line: line + "\n");
in
''
  router id ${bgp.routerId};
  log syslog all;

  protocol device { }

  protocol bfd {
    interface "${bgp.interface}" {
      interval ${toString bgp.bfd.interval} ms;
      multiplier ${toString bgp.bfd.multiplier};
    };
  }
''
+ lib.concatMapStrings (each: ''

  # Off until the box is ready.
  protocol static service_${each} {
    disabled;
    ${each};
  ${lines (map (address: "  route ${address}/${toString length.${each}} blackhole;") (of each))}}
'') families
+ lib.concatStrings (
  lib.mapAttrsToList (name: neighbor: ''

    protocol bgp to_${lib.replaceStrings [ "-" "." ] [ "_" "_" ] name} {
      local as ${toString bgp.asn};
      neighbor ${neighbor.address} as ${toString neighbor.asn};
      bfd;
      hold time 9;
      connect retry time 1;
      error wait time 1, 5;
    ${
      lines (map (each: "  ${each} { import none; export where proto = \"service_${each}\"; };") families)
    }}
  '') bgp.neighbors
)
