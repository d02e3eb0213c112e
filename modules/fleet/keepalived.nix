# keepalived's configuration: a box that isn't ready, according to the file that `linerate fleet announce` writes, has a
# lower priority.
{ lib }:
vrrp: track:
let
  ipv6 = lib.hasInfix ":";
  # keepalived announces addresses of one family, that of the first. It sets and removes the others with them.
  announced = lib.partition (address: ipv6 address == ipv6 (lib.head vrrp.addresses)) vrrp.addresses;
  block =
    name: addresses:
    "  ${name} {\n"
    + lib.concatMapStrings (
      address: "    ${address}/${if ipv6 address then "128" else "32"}\n"
    ) addresses
    + "  }\n";
in
''
  track_file linerate {
    file ${track}
    weight -100
    init_file 1
  }

  vrrp_instance linerate {
    state BACKUP
    interface ${vrrp.interface}
    virtual_router_id ${toString vrrp.virtualRouterId}
    priority ${toString vrrp.priority}
    advert_int ${toString (vrrp.interval / 1000)}.${
      lib.fixedWidthNumber 2 (lib.mod vrrp.interval 1000 / 10)
    }
  ${block "virtual_ipaddress" announced.right}${
    lib.optionalString (announced.wrong != [ ]) (block "virtual_ipaddress_excluded" announced.wrong)
  }  track_file {
      linerate
    }
  }
''
