# keepalived's configuration: a box that isn't ready, according to the file that `linerate fleet announce` writes, has a
# lower priority.
{ lib }:
vrrp: track: ''
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
    virtual_ipaddress {
  ${
    lib.concatMapStrings (
      address: "    ${address}/${if lib.hasInfix ":" address then "128" else "32"}\n"
    ) vrrp.addresses
  }  }
    track_file {
      linerate
    }
  }
''
