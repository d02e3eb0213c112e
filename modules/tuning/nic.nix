# Network cards: queues, rings, coalescing and offloads, in `.link` files, which udev applies when a card appears
# (systemd.link(5)), with or without networkd.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  tuning = config.linerate.tuning;
  cfg = tuning.nic;

  # What the cards can do.
  drivers = {
    # Elastic Network Adapter. Rings: receive up to 16,384 by instance type, send 1,024, or 512 with large LLQ
    # entries (Amazon's ENA Linux driver, README). Packets up to 9,216 bytes, of which EC2 carries 9,001.
    ena = {
      queues = 32;
      rx = 16384;
      tx = 1024;
      mtu = 9216;
    };
    # Intel 82599, X540, X550. 64 queue pairs, of which RSS spreads over 63; rings up to 4,096 on every revision
    # (kernel, ixgbe.h); jumbo frames 9,710 bytes (kernel, ixgbe documentation).
    ixgbe = {
      queues = 63;
      rx = 4096;
      tx = 4096;
      mtu = 9710;
    };
    # A virtual machine's card: its queues and rings are the hypervisor's.
    virtio_net = {
      queues = 256;
      rx = 1024;
      tx = 1024;
      mtu = 65535;
    };
  };

  # By profile. Larger rings survive longer bursts; smaller ones stay in the cache that the card writes to.
  rings = {
    bulk = {
      ena = {
        rx = 8192;
        tx = 1024;
      };
      ixgbe = {
        rx = 4096;
        tx = 4096;
      };
    };
    balanced = {
      ena = {
        rx = 4096;
        tx = 1024;
      };
      ixgbe = {
        rx = 2048;
        tx = 2048;
      };
    };
    latency = {
      ena = {
        rx = 1024;
        tx = 512;
      };
      ixgbe = {
        rx = 512;
        tx = 512;
      };
    };
  };

  # How long a card gathers packets before it interrupts. systemd can't set 0, so the minimum is 1 µs, which ixgbe
  # interprets as adaptive.
  coalescing = {
    ena = {
      bulk.UseAdaptiveRxCoalesce = true;
      balanced.UseAdaptiveRxCoalesce = true;
      latency = {
        UseAdaptiveRxCoalesce = false;
        RxCoalesceSec = "1us";
      };
    };
    ixgbe = {
      bulk.RxCoalesceSec = "1us";
      balanced.RxCoalesceSec = "1us";
      latency.RxCoalesceSec = "10us";
    };
  };

  interface = types.submodule (
    { config, ... }:
    let
      # For an unknown driver, the driver's own values.
      preset = name: rings.${tuning.profile}.${config.driver}.${name} or null;
    in
    {
      options = {
        driver = mkOption {
          type = types.strMatching "[a-z0-9_-]+";
          example = "mlx5_core";
          description = ''
            The kernel's driver, as `ethtool -i` shows it; it identifies the card. The modules know the limits of
            ${lib.concatStringsSep ", " (lib.attrNames drivers)}, and refuse values beyond them. For any other driver
            they use what you set here.
          '';
        };

        mac = mkOption {
          type = types.nullOr (types.strMatching "([0-9a-f]{2}:){5}[0-9a-f]{2}");
          default = null;
          description = ''
            The address of a port, if the host has several with this driver, such as the two of one card. Without it,
            this is about all of them, and it is enough that one of them has a link.
          '';
        };

        queues = mkOption {
          type = types.nullOr types.ints.positive;
          default = null;
          description = ''
            Queue pairs: one for each physical core that takes interrupts. Null keeps the driver's default; the kernel's
            ENA driver has 8, or up to 16 if the instance was launched with more.
          '';
        };

        rxRing = mkOption {
          type = types.nullOr types.ints.positive;
          default = preset "rx";
          defaultText = lib.literalMD "by profile and driver";
          description = ''
            Descriptors of a receive ring. ixgbe has 512 and ENA 1,024 unless told otherwise: at 10 Gbit/s of small
            packets that is 35 to 70 µs of a core that looks away. Source: kernel, ixgbe; ENA, best practices.
          '';
        };

        txRing = mkOption {
          type = types.nullOr types.ints.positive;
          default = preset "tx";
          defaultText = lib.literalMD "by profile and driver";
          description = "Descriptors of a send ring.";
        };

        mtu = mkOption {
          type = types.nullOr types.ints.positive;
          default = null;
          example = 9001;
          description = "The size of a packet, in bytes. More than 1,500 needs switches that support it.";
        };

        placement = mkOption {
          type = types.nullOr (
            types.strMatching "spread|local|(pin|reserve)=[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*"
          );
          default =
            if tuning.cpu.irqCpus == [ ] then
              "spread"
            else
              "pin=${lib.concatMapStringsSep "," toString tuning.cpu.irqCpus}";
          defaultText = lib.literalMD "`pin=` those of `linerate.tuning.cpu.irqCpus`, or `spread` where it is empty";
          description = ''
            Which CPUs serve the queues, as `linerate nic apply --policy` has it: `spread` (a core each before
            siblings), `local` (those of the card's NUMA node), `pin=LIST` or `reserve=LIST`. Null leaves the card
            to the kernel, or to irqbalance.
          '';
        };

        rps = mkOption {
          type = types.bool;
          default = true;
          description = ''
            Whether CPUs with a queue pass packets on to CPUs without one (RPS), if there are fewer queues than CPUs.
            Source: kernel, Documentation/networking/scaling.
          '';
        };

        lro = mkOption {
          type = types.bool;
          default = false;
          description = ''
            Whether the card joins received packets. GRO in the kernel does nearly as much and keeps what was joined
            apart, which forwarding and QUIC need. Source: kernel, ixgbe documentation.
          '';
        };

        coalescing = mkOption {
          type = types.attrsOf (
            types.oneOf [
              types.bool
              types.int
              (types.strMatching "[0-9]+us")
            ]
          );
          default = coalescing.${config.driver}.${tuning.profile} or { };
          defaultText = lib.literalMD "by profile and driver";
          description = ''
            How long the card collects packets before it interrupts: keys of systemd.link(5), with times in
            microseconds. ixgbe: `RxCoalesceSec = "1us"` means adaptive, and a `TxCoalesceSec` of its own is refused
            (kernel, ixgbe_ethtool.c). ENA: adaptive, except for latency (ENA, best practices).
          '';
        };
      };
    }
  );

  # systemd.link(5) writes booleans this way.
  show = value: if lib.isBool value then lib.boolToString value else toString value;

  link = card: {
    matchConfig = {
      Driver = card.driver;
    }
    // lib.optionalAttrs (card.mac != null) { MACAddress = card.mac; };
    linkConfig = {
      # Only the first matching file applies, so it names the card like 99-default.link.
      NamePolicy = "keep kernel database onboard slot path";
      AlternativeNamesPolicy = "database onboard slot path mac";
      MACAddressPolicy = "persistent";
      GenericReceiveOffload = true;
      LargeReceiveOffload = card.lro;
      TCPSegmentationOffload = true;
    }
    // lib.optionalAttrs (card.queues != null) { CombinedChannels = card.queues; }
    // lib.optionalAttrs (card.rxRing != null) { RxBufferSize = card.rxRing; }
    // lib.optionalAttrs (card.txRing != null) { TxBufferSize = card.txRing; }
    // lib.optionalAttrs (card.mtu != null) { MTUBytes = toString card.mtu; };
    # Settings that NixOS's own list for this section lacks in some releases.
    extraConfig = lib.optionalString (card.coalescing != { }) (
      lib.concatStringsSep "\n" (
        [ "[Link]" ] ++ lib.mapAttrsToList (name: value: "${name}=${show value}") card.coalescing
      )
      + "\n"
    );
  };

  # systemd.link(5)'s names for coalescing, and ethtool's, which the host reports.
  coalescingOf =
    card:
    let
      number = value: if lib.isString value then lib.toInt (lib.removeSuffix "us" value) else value;
    in
    lib.mapAttrs' (name: key: lib.nameValuePair key (number card.coalescing.${name})) (
      lib.filterAttrs (name: _: card.coalescing ? ${name}) {
        UseAdaptiveRxCoalesce = "adaptive_rx";
        UseAdaptiveTxCoalesce = "adaptive_tx";
        RxCoalesceSec = "rx_usecs";
        TxCoalesceSec = "tx_usecs";
        RxMaxCoalescedFrames = "rx_frames";
        TxMaxCoalescedFrames = "tx_frames";
      }
    );

  expected = card: {
    inherit (card) driver mac mtu;
    channels.combined = card.queues;
    rings = {
      rx = card.rxRing;
      tx = card.txRing;
    };
    offloads = {
      rx-gro = true;
      rx-lro = card.lro;
      tx-tcp-segmentation = true;
    };
    coalescing = coalescingOf card;
    # What is in effect, as in kernel.nix.
    qdisc = config.boot.kernel.sysctl."net.core.default_qdisc" or null;
    placement =
      if card.placement == null then
        null
      else
        {
          policy = card.placement;
          inherit (card) rps;
        };
  };

  assertionsOf =
    name: card:
    let
      limits = drivers.${card.driver} or { };
      atMost = what: value: limit: {
        assertion = value == null || limit == null || value <= limit;
        message = "linerate.tuning.nic.${name}: ${card.driver} has ${what} up to ${toString limit}, not ${toString value}.";
      };
      irqCpus = tuning.cpu.irqCpus;
    in
    [
      (atMost "queues" card.queues (limits.queues or null))
      (atMost "receive rings" card.rxRing (limits.rx or null))
      (atMost "send rings" card.txRing (limits.tx or null))
      (atMost "packets" card.mtu (limits.mtu or null))
      {
        assertion = card.driver != "ixgbe" || !(card.coalescing ? TxCoalesceSec);
        message = "linerate.tuning.nic.${name}: ixgbe coalesces sends with receives, and refuses TxCoalesceSec.";
      }
      {
        assertion = card.queues == null || irqCpus == [ ] || card.queues <= lib.length irqCpus;
        message = "linerate.tuning.nic.${name}: ${toString card.queues} queues share ${toString (lib.length irqCpus)} irqCpus, so some CPU would take two.";
      }
    ];
in
{
  options.linerate.tuning.nic = mkOption {
    type = types.attrsOf interface;
    default = { };
    description = "The network cards that serve visitors.";
  };

  config = mkIf tuning.enable {
    systemd.network.links = lib.mapAttrs' (name: card: lib.nameValuePair "10-${name}" (link card)) cfg;
    linerate.profile.nic = lib.mapAttrs (_: expected) cfg;
    assertions = lib.concatLists (lib.mapAttrsToList assertionsOf cfg);
  };
}
