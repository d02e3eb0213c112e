#!/usr/bin/env python3
"""monitoring.py DIRECTORY: dashboards, alert rules and scrapes of tests/rendered/fleet-1 with the programs in
DIRECTORY.

A Prometheus scrapes the real services as that host would. Every query of a panel or an alert has to use existing
metrics, and every panel has to show something; promtool accepts the rules, and each alert fires when it should.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

import alerts
from apart import RENDERED, apart, got, shell, until

HOST = RENDERED / "fleet-1"
ADDRESS = "10.99.0.1"
WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}


def metrics(query: str) -> set[str]:
    """Returns the metrics in a query."""
    query = re.sub(r'"(\\.|[^"\\])*"', "", query)
    query = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", query)
    query = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", query)
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w|\s*\()", query)
    return {name for name in names if name not in WORDS}


def start(*command: str | Path, log: Path) -> None:
    """Starts a program that ends with the namespace."""
    subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def services(programs: Path, here: Path) -> None:
    """Starts all of them, with all measurements turned on, and sends them some requests."""
    shell(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=localhost"
        f" -keyout {here}/key.pem -out {here}/chain.pem"
    )
    (here / "www").mkdir()
    (here / "www/index.html").write_text("hello")
    (here / "generation").write_text((HOST / "generation").read_text())
    tls = f"--cert {here}/chain.pem --key {here}/key.pem --generation-file {here}/generation"
    for name, port, flags in (
        ("links", 8080, f"--database {here}/links.db"),
        ("files", 8090, f"--root {here}/www"),
        ("api", 8100, f"--database-url sqlite://{here}/api.db --auth none"),
    ):
        settings = json.loads((HOST / f"settings/{name}").read_text())
        assert settings["admin"].startswith(ADDRESS) or settings["admin"].startswith("systemd:"), settings
        flags += f" --listen 127.0.0.1:{port} --admin {ADDRESS}:{port + 1} --access-log {here}/{name}.log"
        flags += f" --tls-listen 127.0.0.1:{port + 3} {tls}"
        start(programs / f"linerate-{name}", "serve", *flags.split(), log=here / f"{name}.out")
    shell(f"mkdir {here}/textfile")
    # doctor's findings don't matter here.
    subprocess.run(
        [programs / "linerate", "doctor", "--interval", "0", "--textfile", f"{here}/textfile/doctor.prom"],
        capture_output=True,
    )
    start(
        "prometheus-node-exporter",
        f"--web.listen-address={ADDRESS}:9100",
        f"--collector.textfile.directory={here}/textfile",
        log=here / "exporter.out",
    )
    start(
        *f"{programs}/linerate fleet announce --listen {ADDRESS}:8120 --drain-file {here}/drain".split(),
        f"--ready=http://{ADDRESS}:8081/readyz",
        log=here / "announce.out",
    )


def asked(expression: str) -> list[Any]:
    """Returns Prometheus' result for a query; nothing if there is none."""
    answer = got(f"http://127.0.0.1:9090/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    if answer is None:
        sys.exit(f"error: Prometheus refuses {expression}")
    result: list[Any] = json.loads(answer)["data"]["result"]
    return result


def rules_hold(rules: dict[str, Any], here: Path) -> None:
    path = HOST / "rules.json"
    tests = here / "tests.json"
    tests.write_text(json.dumps(alerts.promtool_tests(rules, str(path))))
    for verb, file in (("check", path), ("test", tests)):
        done = subprocess.run(["promtool", verb, "rules", file], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: promtool {verb} rules:\n{done.stdout}{done.stderr}")


def main() -> None:
    programs = Path(sys.argv[1]).resolve()
    apart("monitoring")
    rules = json.loads((HOST / "rules.json").read_text())
    dashboards = {path.stem: json.loads(path.read_text()) for path in sorted((HOST / "dashboards").iterdir())}
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        rules_hold(rules, here)
        # A network card in addition to loopback, which the panels for machines show.
        shell("ip link add e0 type veth peer name e1; ip link set e0 up; ip link set e1 up")
        shell(f"ip address add {ADDRESS}/24 dev e0")
        services(programs, here)
        scrapes = json.loads((HOST / "prometheus.json").read_text())
        targets = {target for job in scrapes for config in job["static_configs"] for target in config["targets"]}
        texts = [
            until(f"metrics at {target}", lambda target=target: got(f"http://{target}/metrics"))  # type: ignore[misc]
            for target in sorted(targets)
            if target.startswith(f"{ADDRESS}:")
        ]
        assert len(texts) == 5, targets
        there = {match for text in texts for match in re.findall(r"^([a-zA-Z_:]\w*)[{ ]", text, re.MULTILINE)}
        # Prometheus' own.
        there.add("up")
        queries = [
            (f"{name}: {panel['title']}", target["expr"])
            for name, dashboard in dashboards.items()
            for panel in dashboard["panels"]
            for target in panel["targets"]
        ]
        every = queries + [(rule["alert"], rule["expr"]) for group in rules["groups"] for rule in group["rules"]]
        missing = [f"{what} asks for {name}" for what, query in every for name in sorted(metrics(query) - there)]
        if missing:
            sys.exit("error: what the services do not have: " + "; ".join(missing))
        # Checks this check: it must find a metric that doesn't exist.
        assert metrics('sum by (x) (rate(no_such_total{a="b"}[5m])) > 1') - there == {"no_such_total"}

        for job in scrapes:
            job["scrape_interval"] = job["scrape_timeout"] = "2s"
        config = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [str(HOST / "rules.json")],
            "scrape_configs": scrapes,
        }
        (here / "prometheus.yml").write_text(json.dumps(config))
        start(
            "prometheus",
            f"--config.file={here}/prometheus.yml",
            f"--storage.tsdb.path={here}/tsdb",
            "--web.listen-address=127.0.0.1:9090",
            log=here / "prometheus.out",
        )
        until("a Prometheus that is ready", lambda: got("http://127.0.0.1:9090/-/ready"))
        for url in ("http://127.0.0.1:8080/none", "http://127.0.0.1:8090/", "http://127.0.0.1:8100/v1/users"):
            got(url)
        for what, query in queries:
            until(f"anything in the panel {what}: {query}", lambda query=query: asked(query) or None)  # type: ignore[misc]
        generation = (HOST / "generation").read_text().strip()
        wanted = {(name, generation) for name in ("links", "files", "api")}

        def builds() -> bool | None:
            info = asked('linerate_build_info{node="fleet-1"}')
            return {(one["metric"]["service"], one["metric"]["generation"]) for one in info} == wanted or None

        until(f"these builds and no others: {wanted}", builds)
        # The other box doesn't exist, so the alert for an unreachable box fires.
        until(
            "an alert for the box that is away",
            lambda: asked('ALERTS{alertname="LinerateNodeDown",node="fleet-2"}') or None,
        )
    count = sum(len(group["rules"]) for group in rules["groups"])
    print(
        f"monitoring: {len(dashboards)} dashboards with {len(queries)} panels show something, {count} alerts fire when they should"
    )


main()
