#!/usr/bin/env python3
"""console.py PROGRAMS [--quick] [--strict]: what the console costs: without viewers, with the live map open, and its
effect on redirects.

PROGRAMS is a directory with linerate, linerate-links, linerate-files and linerate-api. Prints figures and targets, and
writes both to PROGRAMS/../bench/console.json; with --strict, a missed target is a failure. Needs wrk.
"""

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The limit that benches of redirects use too: rounds in turn differ by this much on a quiet machine.
NO_WORSE = 1.03
# One tick in a minute is invisible; a thousandth of a core would be one in a second.
IDLE_SHARE = 0.001
OPEN_SHARE = 0.01
RESIDENT_MIB = 20.0
SCREENS = ("/", "/links", "/links/new", "/access", "/queues", "/profile", "/doctor", "/files")


class Program:
    """A program that runs until it is ended, and prints its address."""

    def __init__(self, path: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        command = [path, *arguments]
        self.process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.said: dict[str, str] = {}

    def until(self, *words: str) -> None:
        """Waits until it has printed all of these, and returns the word that follows each."""
        assert self.process.stdout
        while not all(word in self.said for word in words):
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"error: {self.process.args} ended with {self.process.wait()}")
            word, _, value = line.partition(" ")
            self.said.setdefault(word, value.strip())

    def cpu(self) -> float:
        """Returns the CPU time of its threads in seconds, according to the scheduler."""
        accounts = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(account.read_text().split()[0]) for account in accounts) / 1e9

    def mebibytes(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Report:
    """Figures and targets, printed like the other benches'."""

    def __init__(self) -> None:
        self.targets: list[dict[str, object]] = []
        self.figures: list[dict[str, object]] = []

    def figure(self, name: str, value: float, unit: str) -> None:
        self.figures.append({"name": name, "value": value, "unit": unit})
        print(f"figure: {name}: {value:.3g} {unit}", flush=True)

    def target(self, name: str, value: float, unit: str, limit: float) -> None:
        met = value <= limit
        self.targets.append({"name": name, "value": value, "unit": unit, "limit": limit, "met": met})
        print(f"target: {name} <= {limit:g} {unit}: {'met' if met else 'missed'} ({value:.3g} {unit})", flush=True)


def address(url: str) -> str:
    return re.sub("^https?://|/.*$", "", url)


@contextmanager
def watching(console: Program, *places: str) -> Iterator[list[int]]:
    """Keeps these live parts of pages open meanwhile; counts the events of each."""
    events = [0] * len(places)
    connections = []
    threads = []
    for number, place in enumerate(places):
        connection = http.client.HTTPConnection(address(console.said["console"]), timeout=60)
        connection.request("GET", place)
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"error: {place} is answered with {answer.status}")
        assert connection.sock

        def read(answer: http.client.HTTPResponse = answer, number: int = number) -> None:
            try:
                while line := answer.readline():
                    events[number] += line.startswith(b"event:")
            except (OSError, ValueError, AttributeError):
                pass

        connections.append((connection, connection.sock))
        threads.append(threading.Thread(target=read, daemon=True))
        threads[-1].start()
    yield events
    for _, open_socket in connections:
        open_socket.shutdown(2)
    for thread in threads:
        thread.join()
    for connection, _ in connections:
        connection.close()


def share(program: Program, seconds: float) -> float:
    """Returns the share of one core, over this long."""
    begun, before = time.monotonic(), program.cpu()
    time.sleep(seconds)
    return (program.cpu() - before) / (time.monotonic() - begun)


def redirects(links: Program, seconds: int) -> float:
    """Returns links' CPU time per redirect, in microseconds."""
    before = links.cpu()
    load = ["wrk", "--threads", "1", "--connections", "64", "--duration", f"{seconds}s", f"{links.said['links']}here"]
    said = subprocess.run(load, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in", said)
    if not found or "Non-2xx or 3xx" in said or "Socket errors" in said:
        sys.exit(f"error: not every redirect was one: {said}")
    return (links.cpu() - before) / int(found[1]) * 1e6


def measure(programs: Path, data: Path, quick: bool) -> Report:
    report = Report()
    seconds, rounds = (5.0, 1) if quick else (30.0, 7)
    at = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    database = ("--database", str(data / "links.db"))
    subprocess.run(
        [programs / "linerate-links", "add", "https://example.com/", "--code", "here", *database],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (data / "www").mkdir()
    links = Program(programs / "linerate-links", "serve", *at, "--print-token", *database)
    files = Program(programs / "linerate-files", "serve", *at, "--admin-browse", "--root", str(data / "www"))
    api = Program(programs / "linerate-api", "serve", *at, "--database-url", f"sqlite:{data / 'api.db'}", "--auth", "none")
    running = [links, files, api]
    try:
        links.until("links", "admin", "token")
        files.until("files", "admin")
        api.until("api", "admin")

        def begin() -> Program:
            places = [f"--{name}={address(of.said['admin'])}" for name, of in (("links", links), ("files", files), ("api", api))]
            console = Program(
                programs / "linerate", "console", "--listen", "127.0.0.1:0", *places, "--users", address(api.said["api"]),
                env={"LINERATE_CONSOLE_TOKEN": links.said["token"]},
            )  # fmt: skip
            running.append(console)
            console.until("console")
            return console

        def end(console: Program) -> None:
            running.remove(console)
            console.end()

        console = begin()
        time.sleep(1)
        report.target("resident, nobody has looked yet", console.mebibytes("VmRSS"), "MiB", RESIDENT_MIB)
        for screen in SCREENS:
            connection = http.client.HTTPConnection(address(console.said["console"]), timeout=30)
            connection.request("GET", screen)
            answer = connection.getresponse()
            if answer.status != 200:
                sys.exit(f"error: {screen} is answered with {answer.status}")
            answer.read()
            connection.close()
        time.sleep(1)
        report.target("CPU, nobody looking", share(console, seconds), "of a core", IDLE_SHARE)
        report.target("resident, all screens seen", console.mebibytes("VmRSS"), "MiB", RESIDENT_MIB)
        report.figure("of it its own", console.mebibytes("RssAnon"), "MiB")
        with watching(console, "/live/queues") as events:
            time.sleep(1)
            report.target("CPU, the live map open", share(console, seconds), "of a core", OPEN_SHARE)
        report.figure("events of it a second", events[0] / (seconds + 1), "")
        with watching(console, "/live/overview"):
            time.sleep(1)
            report.figure("CPU, the overview open", share(console, seconds), "of a core")
        end(console)

        redirects(links, 1)
        without, beside = [], []
        for _ in range(rounds):
            without.append(redirects(links, 1 if quick else 3))
            console = begin()
            with watching(console, "/live/queues", "/live/overview"):
                beside.append(redirects(links, 1 if quick else 3))
            end(console)
        report.figure("CPU a redirect without the console", statistics.median(without), "µs")
        report.figure("with it, map and overview open", statistics.median(beside), "µs")
        ratio = statistics.median(one / other for one, other in zip(beside, without, strict=True))
        report.target("a redirect with / without the console", ratio, "x", NO_WORSE)
    finally:
        for program in reversed(running):
            program.end()
    return report


def main() -> None:
    programs = Path(sys.argv[1]).resolve()
    known = {"--quick", "--strict"}
    if unknown := set(sys.argv[2:]) - known:
        sys.exit(f"error: {', '.join(unknown)}: this bench takes {', '.join(sorted(known))}")
    with tempfile.TemporaryDirectory() as data:
        report = measure(programs, Path(data), "--quick" in sys.argv)
    written = programs.parent / "bench/console.json"
    written.parent.mkdir(exist_ok=True)
    written.write_text(json.dumps({"figures": report.figures, "targets": report.targets}, indent=2))
    print(f"written: {written}")
    missed = [str(target["name"]) for target in report.targets if not target["met"]]
    if missed and "--strict" in sys.argv:
        sys.exit(f"error: missed: {'; '.join(missed)}")


main()
