#!/usr/bin/env python3
"""address.py DIRECTORY: the service address of two boxes, in network namespaces, with BIRD and keepalived, their
configuration from tests/rendered/fleet-1 and -2, and the programs in DIRECTORY.

A router spreads visitors over both boxes (BGP, ECMP); in addition, one of them has another address (VRRP). A drained
box loses no request; if one is cut off without notice, the outage is shorter than a second.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from apart import RENDERED, apart, shell, until

ANYCAST, SHARED = "10.98.0.1", "10.99.0.100"
ROUTER = """
router id 10.99.0.254;
log stderr all;
protocol device { }
protocol kernel { ipv4 { export all; }; merge paths on; }
protocol bfd { interface "br0" { interval 100 ms; multiplier 3; }; }
template bgp box { local as 65000; bfd; hold time 9; connect retry time 1; error wait time 1, 1;
  ipv4 { import where net = 10.98.0.1/32; export none; }; }
protocol bgp n1 from box { neighbor 10.99.0.1 as 65001; }
protocol bgp n2 from box { neighbor 10.99.0.2 as 65002; }
"""
# When a box is cut off, requests may stay unanswered for less than this.
CUT_SECONDS = 1.0
# How many requests may be sent twice when flows are moved away and back: the requests that four clients have in flight,
# plus a margin, since the network forgets the address's old place only gradually.
MOVED = 16
# How long requests continue before and after an event.
CALM_SECONDS = 1.0
# A program may stop for longer here than the network may: one trial of several has to be as it should.
TRIALS = 4


class Machine:
    """A machine with its own network and mounts."""

    def __init__(self, name: str, here: Path) -> None:
        self.name, self.here = name, here
        script = "mount -t tmpfs tmpfs /run && mkdir -p /run/bird /run/linerate-fleet && ip link set lo up && exec sleep infinity"
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-euc", script], stdin=subprocess.DEVNULL)
        until(
            f"the network of {name}",
            lambda: True if Path(f"/proc/{self.holder.pid}/comm").read_text() == "sleep\n" else None,
        )

    def command(self, *command: str | Path) -> list[str | Path]:
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", *command]

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(self.command(*command), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: {self.name}: {command}: {done.stderr.strip()}")
        return done.stdout

    def shell(self, script: str) -> str:
        return self.run("sh", "-euc", script)

    def start(self, what: str, *command: str | Path) -> None:
        log = (self.here / f"{self.name}-{what}.log").open("w")
        subprocess.Popen(self.command(*command), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


class Box(Machine):
    """One of the two, with everything that its rendered host runs for the address."""

    def __init__(self, number: int, router: Machine, programs: Path, here: Path) -> None:
        super().__init__(f"fleet-{number}", here)
        self.number, self.programs = number, programs
        host = RENDERED / self.name
        pid = self.holder.pid
        router.shell(f"ip link add v{number} type veth peer name e0 netns {pid}; ip link set v{number} master br0 up")
        self.shell(
            f"ip address add 10.99.0.{number}/24 dev e0; ip link set e0 up; ip route add default via 10.99.0.254"
        )
        self.shell(f"ip address add {ANYCAST}/32 dev lo")
        database = here / f"{number}.db"
        self.run(programs / "linerate-links", "add", "https://example.com/", "--code", "hello", "--database", database)
        admin = f"10.99.0.{number}:8081"
        self.start(
            "links", programs / "linerate-links", "serve", "--database", database, "--listen", ":80", "--admin", admin
        )
        unit = (host / "systemd/system/linerate-fleet.service").read_text()
        announce = re.search(r"^ExecStart=\S+/linerate (.*)$", unit, re.MULTILINE)
        assert announce is not None, unit
        self.start("bird", "bird", "-f", "-c", host / "bird.conf")
        self.start("announce", programs / "linerate", *shlex.split(announce[1]))
        until(
            f"what keepalived of {self.name} reads",
            lambda: self.shell("cat /run/linerate-fleet/track 2>/dev/null || true") or None,
        )
        self.start(
            "keepalived",
            "keepalived",
            "--dont-fork",
            "--log-console",
            "--log-detail",
            "--vrrp",
            "-f",
            host / "keepalived.conf",
        )

    def drain(self, drained: bool) -> None:
        self.run(self.programs / "linerate", "fleet", "drain" if drained else "undrain")

    def health(self) -> str:
        """Returns what a load balancer gets as an answer."""
        return self.shell("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8120/readyz").strip()

    def visits(self) -> int:
        text = self.shell(f"curl -s http://10.99.0.{self.number}:8081/metrics")
        return sum(map(int, re.findall(r'^linerate_links_requests_total\{status="307"\} (\d+)', text, re.MULTILINE)))

    def has_shared(self) -> bool:
        return SHARED in self.shell("ip -brief address show dev e0")


class Visitors:
    """Requests that continue until their results are collected."""

    def __init__(self, machine: Machine, address: str, here: Path) -> None:
        begun = here / "begun"
        begun.unlink(missing_ok=True)
        command = machine.command(sys.executable, "-B", Path(__file__).parent / "client.py", address, begun)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        until(f"a first answer from {address}", lambda: True if begun.exists() else None)
        time.sleep(CALM_SECONDS)

    def end(self) -> tuple[int, int, int, list[float]]:
        time.sleep(CALM_SECONDS)
        said, _ = self.process.communicate()
        assert self.process.returncode == 0, said
        found = json.loads(said)
        return found["requests"], found["again"], found["lost"], found["failed"]


def one_of(what: str, trial: Callable[[], str | None]) -> None:
    """Ends the test if every trial says what is wrong."""
    for _ in range(TRIALS):
        if (wrong := trial()) is None:
            return
        print(f"address: {what}: {wrong}")
    sys.exit(f"error: {what}: wrong {TRIALS} times")


def main() -> None:
    programs = Path(sys.argv[1]).resolve()
    apart("the service address")
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        router, visitor = Machine("router", here), Machine("visitor", here)
        router.shell(
            "ip link add br0 type bridge; ip link set br0 up; ip address add 10.99.0.254/24 dev br0"
            f"; ip link add vc type veth peer name e0 netns {visitor.holder.pid}; ip link set vc up; ip address add 10.97.0.254/24 dev vc"
            # Whole flows are spread, by addresses and ports.
            "; mount -t proc proc /proc; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1"
        )
        visitor.shell("ip link set e0 up; ip address add 10.97.0.1/24 dev e0; ip route add default via 10.97.0.254")
        (here / "router.conf").write_text(ROUTER)
        router.start("bird", "bird", "-f", "-c", here / "router.conf")
        boxes = {number: Box(number, router, programs, here) for number in (1, 2)}

        def announced(*wanted: int) -> None:
            """Waits until the router sends visitors to these boxes and to no others."""

            def look() -> bool | None:
                routes = router.shell(f"ip route show {ANYCAST}")
                return {n for n in boxes if f"via 10.99.0.{n} " in routes} == set(wanted) or None

            until(f"a route to boxes {wanted}", look)

        def shared(wanted: int) -> None:
            until(
                f"{SHARED} at box {wanted} alone",
                lambda: all(box.has_shared() == (n == wanted) for n, box in boxes.items()) or None,
            )

        def held_by(box: int) -> None:
            """Waits until this box has the shared address, while the other one cannot be asked."""
            until(f"the address at box {box}", lambda: boxes[box].has_shared() or None)

        def quiet() -> None:
            """Waits until box 1 is without visitors."""
            announced(2)
            until("a drained box that says so", lambda: boxes[1].health() == "503" or None)
            time.sleep(CALM_SECONDS)
            before = boxes[1].visits()
            time.sleep(CALM_SECONDS)
            assert boxes[1].visits() == before, "a drained box has no visitors"

        def guarded() -> None:
            """Waits until both boxes are back, and the router would notice at once if one of them goes."""
            announced(1, 2)
            until("BFD", lambda: router.shell("birdc show bfd sessions").count(" Up ") >= 2 or None)

        def moved() -> None:
            shared(2)
            time.sleep(CALM_SECONDS)

        def drained(address: str, away: Callable[[], None], back: Callable[[], None]) -> str | None:
            """Box 1 is drained and taken again."""
            before = {number: box.visits() for number, box in boxes.items()}
            visitors = Visitors(visitor, address, here)
            if address == ANYCAST:
                until(
                    "visitors of both boxes",
                    lambda: all(box.visits() > before[number] for number, box in boxes.items()) or None,
                )
            boxes[1].drain(True)
            away()
            boxes[1].drain(False)
            back()
            requests, again, lost, _ = visitors.end()
            said = f"{requests} requests, {again} sent twice, {lost} lost"
            print(f"address: {address}: drained and taken again: {said}")
            return None if lost == 0 and again <= MOVED else f"a drain loses nothing, and moves what goes on: {said}"

        def cut_off(address: str, port: str, away: Callable[[], None], back: Callable[[], None]) -> str | None:
            """A box loses its cable."""
            visitors = Visitors(visitor, address, here)
            cut = time.monotonic()
            router.shell(f"ip link set {port} nomaster")
            away()
            requests, _, _, failed = visitors.end()
            gap = max([at - cut for at in failed], default=0.0)
            said = f"{requests} requests, {len(failed)} tries without an answer, the last given up after {gap:.2f} s"
            print(f"address: {address}: a box cut off: {said}")
            router.shell(f"ip link set {port} master br0")
            back()
            return None if failed and gap < CUT_SECONDS else f"a cut is felt, and for less than a second: {said}"

        try:
            # BGP; of a cut, only BFD tells the router.
            announced(1, 2)
            until("boxes that are ready", lambda: all(box.health() == "200" for box in boxes.values()) or None)
            one_of("BGP, drained", lambda: drained(ANYCAST, quiet, lambda: announced(1, 2)))
            one_of("BGP, cut off", lambda: cut_off(ANYCAST, "v2", lambda: announced(1), guarded))
            # VRRP.
            shared(1)
            one_of("VRRP, drained", lambda: drained(SHARED, moved, lambda: shared(1)))
            one_of("VRRP, cut off", lambda: cut_off(SHARED, "v1", lambda: held_by(2), lambda: shared(1)))
        except BaseException:
            for log in sorted(here.glob("*.log")):
                print(f"-- {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
            raise


main()
