# The kernel's network settings, as a table: value, reason and source.
#
# These are left out on purpose. Gone or without effect: tcp_tw_recycle, tcp_low_latency. Harmful: tcp_timestamps=0,
# tcp_sack=0, fewer tcp_max_tw_buckets, tcp_abort_on_overflow, tcp_mem, dev_weight, tcp_fin_timeout, isolcpus,
# mitigations=off, a global busy_poll. Already the default: tcp_syncookies=1, tcp_tw_reuse=2.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  tuning = config.linerate.tuning;
  cfg = tuning.kernel;

  kibibyte = 1024;
  mebibyte = 1024 * kibibyte;
  inFlight = toString ((if tuning.wan then 64 else 16) * mebibyte);
  # The largest receive buffer that implementations of QUIC (RFC 9000) chose by measuring.
  quic = 7500000;

  table = {
    "net.ipv4.tcp_rmem" = {
      value = "4096 131072 ${inFlight}";
      why = ''
        Least, first and greatest receive buffer of a connection, in bytes. The greatest covers bandwidth times
        delay: 16 MiB is 13 ms at 10 Gbit/s; autotuning takes it only where it is used.
      '';
      source = "tuned, profile network-throughput; tcp(7)";
    };
    "net.ipv4.tcp_wmem" = {
      value = "4096 16384 ${inFlight}";
      why = "Least, first and greatest send buffer of a connection, in bytes; sized as the receive buffer is.";
      source = "tuned, profile network-throughput; tcp(7)";
    };
    "net.core.rmem_max" = {
      value = quic;
      why = "The receive buffer that a QUIC socket may ask for, in bytes. It does not bound TCP's autotuning.";
      source = "quic-go, UDP buffer sizes";
    };
    "net.core.wmem_max" = {
      value = quic;
      why = "The send buffer that a QUIC socket may ask for, in bytes. It does not bound TCP's autotuning.";
      source = "quic-go, UDP buffer sizes";
    };
    "net.ipv4.tcp_notsent_lowat" = {
      value = 128 * kibibyte;
      why = ''
        A socket is writable only below so many bytes not yet sent: less kernel memory for each connection, and
        less old data ahead of an answer.
      '';
      source = "Cloudflare on HTTP/2 prioritisation; tuned, profile network-latency";
    };
    "net.ipv4.tcp_slow_start_after_idle" = {
      value = 0;
      why = "A kept-alive connection keeps its window over a pause, and does not start slowly again.";
      source = "kernel, ip-sysctl";
    };
    "net.ipv4.tcp_mtu_probing" = {
      value = 1;
      why = "Finds the size that gets through where routers drop large packets silently; matters with an MTU of 9001.";
      source = "kernel, ip-sysctl; RFC 4821";
    };
    "net.core.default_qdisc" = {
      value = "fq";
      why = "Paces each flow by itself and lets none starve another; BBR needs it.";
      source = "kernel, sch_fq";
    };
    "net.ipv4.tcp_congestion_control" = {
      value = if tuning.wan then "bbr" else "cubic";
      why = "BBR for clients far away; near by it gains nothing, and it collapses where a virtual CPU is taken away.";
      source = "arXiv 2601.05665";
    };
    "net.core.somaxconn" = {
      value = 16384;
      why = "Connections that may wait to be accepted. The services ask for as many; the lesser counts.";
      source = "listen(2)";
    };
    "net.ipv4.tcp_max_syn_backlog" = {
      value = 16384;
      why = "Handshakes under way on a socket before SYN cookies take over; as many as may wait to be accepted.";
      source = "kernel, ip-sysctl";
    };
    "net.ipv4.ip_local_port_range" = {
      value = "16384 60999";
      why = "Ports of connections that this host begins, to a database or an upstream. Answers need none.";
      source = "kernel, ip-sysctl";
    };
    "vm.min_free_kbytes" = {
      # 1 % of MiB in KiB.
      value = if tuning.memoryMiB == null then null else tuning.memoryMiB * 1024 / 100;
      why = "Kept free for the network card, which asks at line rate and cannot wait: 1 % of memory, in KiB.";
      source = "Amazon's ENA Linux driver, best practices";
    };
  };
  effective = name: config.boot.kernel.sysctl.${name} or null;
in
{
  options.linerate.tuning.kernel = lib.mapAttrs (
    _: row:
    mkOption {
      type = types.nullOr (
        types.oneOf [
          types.int
          types.str
        ]
      );
      default = row.value;
      description = ''
        ${row.why}

        Source: ${row.source}. Null leaves the kernel's own.
      '';
    }
  ) table;

  config = mkIf tuning.enable {
    boot.kernel.sysctl = lib.filterAttrs (_: value: value != null) cfg;
    # What is in effect, which a host may have set itself. Null stays null, and is not checked.
    linerate.profile.kernel.sysctl = lib.mapAttrs (name: _: effective name) cfg;

    assertions = [
      {
        assertion =
          effective "net.ipv4.tcp_congestion_control" != "bbr" || effective "net.core.default_qdisc" == "fq";
        message = "linerate.tuning.kernel: bbr paces by fq, so net.core.default_qdisc has to be \"fq\".";
      }
    ];
  };
}
