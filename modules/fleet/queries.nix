# Queries to Prometheus: one table for both dashboards and alert rules.
#
# A dashboard has panels; a panel has a title, Grafana's name of the unit, and a query with the labels that name its
# lines. If somebody has to act on what a panel shows, `alert` says when: `when` is appended to the query.
{ lib }:
let
  services = [
    "links"
    "files"
    "api"
  ];
  window = "5m";

  panel = title: unit: by: query: {
    inherit
      title
      unit
      by
      query
      ;
  };
  alert =
    name: severity: when: wait: summary: panel:
    panel
    // {
      alert = {
        inherit
          name
          severity
          summary
          wait
          when
          ;
      };
    };

  # What every service has.
  common =
    service:
    let
      metric = name: "linerate_${service}_${name}";
      job = "job=\"linerate-${service}\"";
      Service = lib.toUpper (lib.substring 0 1 service) + lib.substring 1 (-1) service;
      rate = name: labels: "rate(${metric name}{${labels}}[${window}])";
    in
    [
      (panel "Requests" "reqps" [ "node" ] "sum by (node) (${rate "requests_total" ""})")
      (alert "${Service}Errors" "critical" "> 0.01" "5m"
        "More than 1 % of the requests to ${service} are answered 5xx."
        (
          panel "Answered 5xx" "percentunit" [ "node" ]
            "sum by (node) (${rate "requests_total" "status=~\"5.*\""}) / sum by (node) (${rate "requests_total" ""})"
        )
      )
      (panel "Connections" "short" [
        "node"
        "protocol"
      ] "sum by (node, protocol) (${metric "listener_open"})")
      (alert "${Service}Shed" "warning" "> 0" "10m"
        "Connections or requests to ${service} find no room: its limits, or who asks so often."
        (panel "Shed" "ops" [ "node" "reason" ] "sum by (node, reason) (${rate "listener_shed_total" ""})")
      )
      (panel "Handshakes that failed" "ops" [
        "node"
      ] "sum by (node) (${rate "listener_handshake_failures_total" ""})")
      (panel "CPUs used" "short" [
        "node"
      ] "sum by (node) (rate(process_cpu_seconds_total{${job}}[${window}]))")
      (panel "Memory" "bytes" [ "node" ] "sum by (node) (process_resident_memory_bytes{${job}})")
      (alert "${Service}Descriptors" "warning" "> 0.8" "10m"
        "${Service} has more than 80 % of the file descriptors open that it may open."
        (
          panel "File descriptors" "percentunit" [
            "node"
          ] "max by (node) (process_open_fds{${job}} / process_max_fds{${job}})"
        )
      )
      (alert "${Service}Certificate" "warning" "< 14 * 86400" "1h"
        "A certificate of ${service} ends within 14 days."
        (
          panel "Until certificates end" "s" [
            "node"
            "name"
          ] "min by (node, name) (${metric "certificate_not_after_seconds"})"
        )
      )
      (alert "${Service}Panics" "critical" "> 0" "0m" "A panic in ${service}: its log says where." (
        panel "Panics in an hour" "short" [
          "node"
        ] "sum by (node) (increase(${metric "panics_total"}[1h]))"
      ))
      (alert "${Service}LogDropped" "warning" "> 0" "10m"
        "The disk does not keep up with the access log of ${service}."
        (
          panel "Access log lines dropped" "ops" [
            "node"
          ] "sum by (node) (${rate "access_log_dropped_total" ""})"
        )
      )
    ];

  quantile =
    q: by: metric:
    "histogram_quantile(${q}, sum by (${
      lib.concatStringsSep ", " (by ++ [ "le" ])
    }) (rate(${metric}_bucket[${window}])))";

  own = {
    links = [
      (panel "Time of a read, 99 of 100" "s" [ "node" ] (
        quantile "0.99" [ "node" ] "linerate_links_sampled_read_seconds"
      ))
      (panel "Visits answered from the cache" "percentunit" [ "node" ]
        "sum by (node) (rate(linerate_links_cache_lookups_total{result=\"hit\"}[${window}])) / sum by (node) (rate(linerate_links_cache_lookups_total[${window}]))"
      )
      (panel "Memory of the cache" "bytes" [ "node" ] "sum by (node) (linerate_links_cache_bytes)")
      (alert "LinksWrites" "critical" "> 500" "5m"
        "Writes of links wait for the database: further ones are soon answered 503."
        (panel "Writes that wait" "short" [ "node" ] "max by (node) (linerate_links_write_queue_depth)")
      )
      (alert "LinksClicks" "warning" "> 1000000" "10m"
        "Clicks wait in memory for the database: what is killed now loses them."
        (panel "Clicks not yet stored" "short" [ "node" ] "sum by (node) (linerate_links_clicks_pending)")
      )
      (alert "LinksFeed" "critical" "> 5" "1m"
        "A server does not hear what others write: it answers from its cache for as long as it is told to, and then from the database."
        (
          panel "Since writes of others were heard of" "s" [
            "node"
          ] "max by (node) (linerate_links_feed_age_seconds)"
        )
      )
    ];
    files = [
      (panel "Sent" "Bps" [ "node" ] "sum by (node) (rate(linerate_files_sent_bytes_total[${window}]))")
      (panel "Waits for the disk" "ops" [
        "node"
      ] "sum by (node) (rate(linerate_files_cold_reads_total[${window}]))")
      (panel "Answers cut short" "ops" [
        "node"
      ] "sum by (node) (rate(linerate_files_answers_cut_total[${window}]))")
      (panel "Files in pipes" "bytes" [ "node" ] "sum by (node) (linerate_files_pipe_bytes)")
    ];
    api = [
      (panel "Time of a request, 99 of 100" "s" [ "node" "operation" ] (
        quantile "0.99" [ "node" "operation" ] "linerate_api_request_seconds"
      ))
      (panel "Reads answered from the cache" "ops" [
        "node"
      ] "sum by (node) (rate(linerate_api_cache_hits_total[${window}]))")
      (panel "Looks for API keys" "ops" [
        "node"
      ] "sum by (node) (rate(linerate_api_key_looks_total[${window}]))")
    ];
  };

  fleet = [
    (alert "NodeDown" "critical" "== 0" "1m" "A listener for operators does not answer Prometheus." (
      panel "Answers Prometheus" "short" [ "node" "job" ] "min by (node, job) (up{job=~\"linerate-.*\"})"
    ))
    (alert "NotAnnounced" "critical" "== 0" "2m"
      "A box does not take its part of the service address: it is drained, or a service is not ready."
      (
        panel "Takes its part of the address" "short" [ "node" ] "min by (node) (linerate_fleet_announced)"
      )
    )
    (panel "Services by version and generation" "short" [
      "service"
      "version"
      "generation"
    ] "count by (service, version, generation) (linerate_build_info)")
    (alert "GenerationsApart" "warning" "> 1" "1d"
      "Boxes of a wave run different generations for a day: an update did not go through."
      (
        panel "Generations of a wave" "short" [
          "wave"
        ] "count by (wave) (count by (wave, generation) (linerate_build_info{wave!=\"\"}))"
      )
    )
    (alert "DoctorCritical" "critical" "> 0" "5m"
      "linerate doctor finds what keeps a box from its work: run it there."
      (
        panel "Critical findings of the doctor" "short" [
          "node"
        ] "max by (node) (linerate_doctor_findings{severity=\"critical\"})"
      )
    )
    (alert "DoctorWarning" "warning" "> 0" "1h" "linerate doctor finds what costs: run it there." (
      panel "Warnings of the doctor" "short" [
        "node"
      ] "max by (node) (linerate_doctor_findings{severity=\"warning\"})"
    ))
    (alert "DoctorSilent" "warning" "> 600" "5m" "linerate doctor has not looked for ten minutes." (
      panel "Since the doctor looked" "s" [
        "node"
      ] "time() - max by (node) (linerate_doctor_look_timestamp_seconds)"
    ))
    (panel "Requests to all boxes" "reqps" [ ] (
      lib.concatMapStringsSep " + " (
        service: "(sum(rate(linerate_${service}_requests_total[${window}])) or vector(0))"
      ) services
    ))
  ];

  machine = [
    (panel "CPUs used, by mode" "short" [
      "node"
      "mode"
    ] "sum by (node, mode) (rate(node_cpu_seconds_total{mode!=\"idle\"}[${window}]))")
    (alert "MachineMemory" "critical" "< 0.05" "10m" "Less than 5 % of a machine's memory is left." (
      panel "Memory left" "percentunit" [
        "node"
      ] "min by (node) (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)"
    ))
    (panel "Received" "Bps" [
      "node"
      "device"
    ] "sum by (node, device) (rate(node_network_receive_bytes_total{device!=\"lo\"}[${window}]))")
    (panel "Sent" "Bps" [
      "node"
      "device"
    ] "sum by (node, device) (rate(node_network_transmit_bytes_total{device!=\"lo\"}[${window}]))")
    (alert "PacketsDropped" "warning" "> 10" "10m"
      "A card drops packets: linerate doctor there says why."
      (
        panel "Packets dropped" "pps" [
          "node"
          "device"
        ] "sum by (node, device) (rate(node_network_receive_drop_total{device!=\"lo\"}[${window}]))"
      )
    )
    (panel "Packets that a CPU had no time for" "pps" [
      "node"
    ] "sum by (node) (rate(node_softnet_times_squeezed_total[${window}]))")
  ];
in
{
  fleet = {
    title = "linerate: the fleet";
    panels = fleet;
  };
  machine = {
    title = "linerate: machines";
    panels = machine;
  };
}
// lib.genAttrs services (service: {
  title = "linerate-${service}";
  panels = common service ++ own.${service};
})
