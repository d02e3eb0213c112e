"""When each alert fires, and when it doesn't: for promtool, with what Prometheus would have scraped.

Values are in promtool's notation: `0+10x30` starts with 0 and increases by 10 each minute, 30 times.
"""

from typing import Any

SERVICES = ("links", "files", "api")
# By alert: series that fire it, and series that don't. `S` stands for a service, as in the names of alerts and series.
OF_EACH_SERVICE = {
    "Errors": (
        {
            'linerate_S_requests_total{node="a",status="503"}': "0+2x60",
            'linerate_S_requests_total{node="a",status="200"}': "0+98x60",
        },
        {
            'linerate_S_requests_total{node="a",status="503"}': "0+1x60",
            'linerate_S_requests_total{node="a",status="200"}': "0+199x60",
        },
    ),
    "Shed": (
        {'linerate_S_listener_shed_total{node="a",reason="overall"}': "0+1x60"},
        {'linerate_S_listener_shed_total{node="a",reason="overall"}': "7+0x60"},
    ),
    "Descriptors": (
        {
            'process_open_fds{node="a",job="linerate-S"}': "81+0x60",
            'process_max_fds{node="a",job="linerate-S"}': "100+0x60",
        },
        {
            'process_open_fds{node="a",job="linerate-S"}': "80+0x60",
            'process_max_fds{node="a",job="linerate-S"}': "100+0x60",
        },
    ),
    "Certificate": (
        {'linerate_S_certificate_not_after_seconds{node="a",name="x"}': "1209599-60x90"},
        {'linerate_S_certificate_not_after_seconds{node="a",name="x"}': "1300000-60x90"},
    ),
    "Panics": (
        {'linerate_S_panics_total{node="a"}': "0x30 1x60"},
        {'linerate_S_panics_total{node="a"}': "3x90"},
    ),
    "LogDropped": (
        {'linerate_S_access_log_dropped_total{node="a"}': "0+5x60"},
        {'linerate_S_access_log_dropped_total{node="a"}': "5x60"},
    ),
}
OTHERS = {
    "LinksWrites": (
        {'linerate_links_write_queue_depth{node="a"}': "501x60"},
        {'linerate_links_write_queue_depth{node="a"}': "500x60"},
    ),
    "LinksClicks": (
        {'linerate_links_clicks_pending{node="a"}': "1000001x60"},
        {'linerate_links_clicks_pending{node="a"}': "1000000x60"},
    ),
    "LinksFeed": (
        {'linerate_links_feed_age_seconds{node="a"}': "6x60"},
        {'linerate_links_feed_age_seconds{node="a"}': "5x60"},
    ),
    "NodeDown": ({'up{node="a",job="linerate-links"}': "0x60"}, {'up{node="a",job="linerate-links"}': "1x60"}),
    "NotAnnounced": ({'linerate_fleet_announced{node="a"}': "0x60"}, {'linerate_fleet_announced{node="a"}': "1x60"}),
    "GenerationsApart": (
        {
            'linerate_build_info{wave="w",generation="1"}': "1x1600",
            'linerate_build_info{wave="w",generation="2"}': "1x1600",
        },
        {
            'linerate_build_info{wave="w",generation="1"}': "1x1600",
            'linerate_build_info{wave="v",generation="2"}': "1x1600",
            # Boxes of no wave.
            'linerate_build_info{generation="1"}': "1x1600",
            'linerate_build_info{generation="2"}': "1x1600",
        },
    ),
    "DoctorCritical": (
        {'linerate_doctor_findings{node="a",severity="critical"}': "1x60"},
        {
            'linerate_doctor_findings{node="a",severity="critical"}': "0x60",
            'linerate_doctor_findings{node="a",severity="notice"}': "1x60",
        },
    ),
    "DoctorWarning": (
        {'linerate_doctor_findings{node="a",severity="warning"}': "1x90"},
        {'linerate_doctor_findings{node="a",severity="warning"}': "0x90"},
    ),
    "DoctorSilent": (
        {'linerate_doctor_look_timestamp_seconds{node="a"}': "0x60"},
        {'linerate_doctor_look_timestamp_seconds{node="a"}': "0+60x60"},
    ),
    "MachineMemory": (
        {'node_memory_MemAvailable_bytes{node="a"}': "4x60", 'node_memory_MemTotal_bytes{node="a"}': "100x60"},
        {'node_memory_MemAvailable_bytes{node="a"}': "5x60", 'node_memory_MemTotal_bytes{node="a"}': "100x60"},
    ),
    "PacketsDropped": (
        {'node_network_receive_drop_total{node="a",device="e0"}': "0+700x60"},
        {
            'node_network_receive_drop_total{node="a",device="e0"}': "0+500x60",
            'node_network_receive_drop_total{node="a",device="lo"}': "0+900x60",
        },
    ),
}
# When promtool looks: after the longest wait of any alert but GenerationsApart's.
LOOK = "45m"
LOOKS = {"GenerationsApart": "25h", "DoctorWarning": "70m", "Certificate": "70m"}


def cases() -> dict[str, tuple[dict[str, str], dict[str, str], str]]:
    """Returns, by alert, what fires it, what doesn't, and when to look."""
    found = {f"Linerate{name}": (*series, LOOKS.get(name, LOOK)) for name, series in OTHERS.items()}
    for service in SERVICES:
        for name, series in OF_EACH_SERVICE.items():
            firing, quiet = (
                {key.replace("_S_", f"_{service}_").replace("-S", f"-{service}"): value for key, value in one.items()}
                for one in series
            )
            found[f"Linerate{service.capitalize()}{name}"] = (firing, quiet, LOOKS.get(name, LOOK))
    return found


def promtool_tests(rules: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns promtool's file: each alert fires where it should, and doesn't where it shouldn't."""
    known = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    table = cases()
    assert known.keys() == table.keys(), f"alerts without a case, or the other way: {known.keys() ^ table.keys()}"
    tests: list[dict[str, Any]] = []
    for alert, (firing, quiet, look) in table.items():
        for series, fires in ((firing, True), (quiet, False)):
            case: dict[str, Any] = {"eval_time": look, "alertname": alert}
            tests.append(
                {
                    "name": f"{alert} {'fires' if fires else 'stays quiet'}",
                    "interval": "1m",
                    "input_series": [{"series": key, "values": value} for key, value in series.items()],
                    "alert_rule_test": [case],
                    "fires": fires,
                }
            )
    for test in tests:
        # promtool compares labels; a series' labels are its own.
        if test.pop("fires"):
            rule = known[test["alert_rule_test"][0]["alertname"]]
            labels = next(iter(test["input_series"]))["series"]
            test["alert_rule_test"][0]["exp_alerts"] = [
                {"exp_labels": rule["labels"] | kept(labels, rule["expr"]), "exp_annotations": rule["annotations"]}
            ]
    return {"rule_files": [path], "evaluation_interval": "1m", "tests": tests}


def kept(series: str, query: str) -> dict[str, str]:
    """Returns the labels of a series that a query keeps: those that it sums by."""
    labels = dict(one.split("=", 1) for one in series.partition("{")[2].rstrip("}").split(",") if one)
    by = {name.strip() for name in query.partition("by (")[2].partition(")")[0].split(",")}
    return {name: value.strip('"') for name, value in labels.items() if name in by}
