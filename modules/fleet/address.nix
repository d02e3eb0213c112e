# The service address: visitors use one address, and boxes that are ready share it.
{
  config,
  lib,
  ...
}:
let
  inherit (lib)
    mkEnableOption
    mkIf
    mkOption
    optional
    optionals
    types
    ;
  cfg = config.linerate.fleet.address;
  inherit (cfg) bgp nlb vrrp;
  compatibility = import ../compatibility.nix { inherit lib; };
  inherit (compatibility) bird;
  family = address: if lib.hasInfix ":" address then "ipv6" else "ipv4";
  families = lib.unique (map family bgp.addresses);
  directory = "/run/linerate-fleet";
  enable = bgp.enable || nlb.enable || vrrp.enable;
  milliseconds =
    default: description:
    mkOption {
      type = types.ints.between 10 10000;
      inherit default description;
    };
  addresses = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "192.0.2.10" ];
    description = "The addresses that visitors connect to, without prefix lengths.";
  };
in
{
  options.linerate.fleet.address = {
    ready = mkOption {
      type = types.listOf types.str;
      default = lib.filter (url: url != null) (
        map (service: service.readyUrl) (
          lib.attrValues (removeAttrs config.linerate.services [ "console" ])
        )
      );
      defaultText = lib.literalMD "`/readyz` of every service of this host that visitors ask";
      description = "URLs that must all answer 200 for the box to take its share of the address.";
    };

    every = milliseconds 100 "How often these URLs are requested, in milliseconds.";

    bgp = {
      enable = mkEnableOption "the service address by BGP and BFD, from BIRD, for routers that spread visitors over boxes";
      inherit addresses;
      routerId = mkOption {
        type = types.str;
        example = "10.0.0.1";
        description = "An IPv4 address that no other router has.";
      };
      asn = mkOption {
        type = types.ints.between 1 4294967294;
        example = 65001;
        description = "The number of this box's autonomous system.";
      };
      interface = mkOption {
        type = types.str;
        example = "eno1";
        description = "Where the neighbors are.";
      };
      neighbors = mkOption {
        default = { };
        description = "The routers.";
        type = types.attrsOf (
          types.submodule {
            options = {
              address = mkOption {
                type = types.str;
                example = "10.0.0.254";
                description = "Its address.";
              };
              asn = mkOption {
                type = types.ints.between 1 4294967294;
                example = 65000;
                description = "The number of its autonomous system.";
              };
            };
          }
        );
      };
      bfd = {
        interval = milliseconds 100 "How often box and router show one another that they are there, in milliseconds.";
        multiplier = mkOption {
          type = types.ints.between 2 50;
          default = 3;
          description = "How many of these may be missed before the router sends visitors to other boxes.";
        };
      };
    };

    vrrp = {
      enable = mkEnableOption "the service address by VRRP, from keepalived: one of two boxes in a network has it";
      inherit addresses;
      interface = mkOption {
        type = types.str;
        example = "eno1";
        description = "Where the address is.";
      };
      virtualRouterId = mkOption {
        type = types.ints.between 1 255;
        default = 51;
        description = "The same on both boxes, and on no others in the network.";
      };
      priority = mkOption {
        # A box that is not ready counts 100 less, so any two of these differ by less than that.
        type = types.ints.between 102 201;
        example = 150;
        description = ''
          The box with the higher one has the address. One that is not ready counts 100 less, which is less than any
          other priority that is allowed.
        '';
      };
      interval = milliseconds 100 "How often the box that has it says so, in milliseconds; the other takes it after three of these.";
    };

    nlb = {
      enable = mkEnableOption "an answer for the whole box to the health checks of a load balancer, such as AWS's NLB: 200 at /readyz";
      port = mkOption {
        type = types.port;
        default = 8120;
        description = "The port for health checks; the target group's protocol for them is HTTP.";
      };
    };
  };

  config = mkIf enable {
    users = {
      users.linerate-fleet = {
        isSystemUser = true;
        group = "linerate-fleet";
      };
      groups.linerate-fleet = { };
    };

    systemd.services.linerate-fleet = {
      description = "Take this box's part of the service address while its services are ready";
      wantedBy = [ "multi-user.target" ];
      after = [
        "network.target"
      ]
      ++ optional bgp.enable "${bird}.service"
      ++ map (name: "linerate-${name}.service") (lib.attrNames config.linerate.services);
      before = optional vrrp.enable "keepalived.service";
      serviceConfig = import ../sandbox.nix { } // {
        ExecStart = lib.escapeShellArgs (
          [
            (lib.getExe config.linerate.packages.linerate)
            "fleet"
            "announce"
            "--every=${toString cfg.every}"
          ]
          ++ map (url: "--ready=${url}") cfg.ready
          ++ optionals bgp.enable (
            [ "--bird=/run/bird/bird.ctl" ] ++ map (family: "--protocol=service_${family}") families
          )
          ++ optional vrrp.enable "--track-file=${directory}/track"
          ++ optional nlb.enable "--listen=:${toString nlb.port}"
        );
        User = "linerate-fleet";
        Group = "linerate-fleet";
        SupplementaryGroups = optional bgp.enable bird;
        # This directory records whether a box is drained, and survives a restart of the unit.
        RuntimeDirectory = baseNameOf directory;
        RuntimeDirectoryMode = "0755";
        RuntimeDirectoryPreserve = true;
        UMask = "0022";
        Restart = "always";
        RestartSec = 1;
        MemoryMax = "64M";
        # The kernel schedules this unit in time even when services are busy.
        CPUWeight = 1000;
        OOMScoreAdjust = -500;
        RestrictAddressFamilies = [
          "AF_INET"
          "AF_INET6"
          "AF_UNIX"
        ];
        SystemCallFilter = [
          "@system-service"
          "~@privileged @resources"
          # A worker stays on its CPU.
          "sched_setaffinity"
        ];
      };
    };

    services = lib.mkMerge [
      (mkIf bgp.enable {
        ${bird} = {
          enable = lib.mkDefault true;
          config = import ./bird.nix { inherit lib; } bgp;
        };
      })
      (mkIf vrrp.enable {
        keepalived = {
          enable = lib.mkDefault true;
          # Version 3 counts in hundredths of a second.
          extraGlobalDefs = "vrrp_version 3";
          extraConfig = import ./keepalived.nix { inherit lib; } vrrp "${directory}/track";
        };
      })
    ];

    # A box accepts packets to the address even if other boxes have it too: it serves whatever its router sends here.
    networking = {
      interfaces.lo = mkIf bgp.enable (
        lib.genAttrs families (wanted: {
          addresses = map (address: {
            inherit address;
            prefixLength = if wanted == "ipv6" then 128 else 32;
          }) (lib.filter (address: family address == wanted) bgp.addresses);
        })
      );
      firewall = lib.mkMerge [
        (mkIf bgp.enable {
          interfaces.${bgp.interface} = {
            allowedTCPPorts = [ 179 ];
            # BFD (RFC 5881).
            allowedUDPPorts = [ 3784 ];
          };
        })
        (mkIf (vrrp.enable && config.networking.nftables.enable) {
          extraInputRules = "iifname \"${vrrp.interface}\" meta l4proto vrrp accept";
        })
        (mkIf (vrrp.enable && !config.networking.nftables.enable) {
          # NixOS's script empties this chain before it adds rules, so nothing has to be removed.
          extraCommands = "ip46tables -A nixos-fw -i ${vrrp.interface} -p vrrp -j nixos-fw-accept";
        })
        (mkIf nlb.enable { allowedTCPPorts = [ nlb.port ]; })
      ];
    };

    assertions = [
      {
        assertion = cfg.ready != [ ];
        message = "linerate.fleet.address: no service of this host says whether it is ready; name URLs in linerate.fleet.address.ready.";
      }
      {
        assertion = bgp.enable -> bgp.addresses != [ ] && bgp.neighbors != { };
        message = "linerate.fleet.address.bgp: set addresses and neighbors.";
      }
      {
        assertion = vrrp.enable -> vrrp.addresses != [ ];
        message = "linerate.fleet.address.vrrp: set addresses.";
      }
      {
        assertion = lib.intersectLists bgp.addresses vrrp.addresses == [ ];
        message = "linerate.fleet.address: an address is shared by BGP or by VRRP, and not by both.";
      }
    ];
  };
}
