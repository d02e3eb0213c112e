"""portable [NAME...]: boots the rendered hosts on Debian 13 in QEMU, and runs the scripts of tests/vm on them."""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import binaries
import debian
import interactive
import lanes
import nixos
import rendering
from catalogue import BY_NAME, TESTS
from host import Host
from report import say, skip
from scenario import Made

# Timeout of `--when`: whoever was to make the file may have been killed.
WAIT_SECONDS = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="portable", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which tests: {', '.join(TESTS)}; all but {', '.join(sorted(BY_NAME))} by default")
    parser.add_argument("--boot", metavar="HOST", help="boot this host of tests/rendered, to look around in")
    parser.add_argument("--when", metavar="FILE", type=Path, help="fetch and build what the tests need, and run them as soon as this exists")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in TESTS:
            parser.error(f"there is no test called {name}")
    if os.geteuid() != 0:
        parser.error("only root may make the guests' file system and network")

    with tempfile.TemporaryDirectory(prefix="linerate-portable-") as directory:
        if arguments.boot:
            made = prepare({arguments.boot}, set(), Path(directory))
            return interactive.boot(made.hosts[arguments.boot], made)
        names = arguments.names or [name for name in TESTS if name not in BY_NAME]
        return suite(names, Path(directory), arguments.when)


def suite(names: list[str], directory: Path, when: Path | None) -> int:
    began = time.monotonic()
    roles = [role for name in names for role in TESTS[name].values()]
    systems = {role.nixos for role in roles if role.nixos}
    made = prepare({role.host for role in roles if role.host}, systems, directory)
    say(f"prepared in {time.monotonic() - began:.0f} s")
    waits_until = time.monotonic() + WAIT_SECONDS
    while when and not when.exists():
        if time.monotonic() > waits_until:
            raise SystemExit(f"error: {when} has not appeared in {WAIT_SECONDS} s")
        time.sleep(0.2)
    began = time.monotonic()
    missing = {}
    for name in names:
        if any(role.host and role.host not in made.hosts for role in TESTS[name].values()):
            missing[name] = "its host is rendered when it is needed, and no nixpkgs is at hand"
        if any(role.nixos and role.nixos not in made.disks for role in TESTS[name].values()):
            missing[name] = "its system is not to be built here: .ci/nixos.sh says why"
    names = [name for name in names if name not in missing]
    outcomes = lanes.run(names, made)
    failed = {name: reason for name, reason in outcomes.items() if reason}
    for name, reason in missing.items():
        skip(f"vm-{name}", reason)
    say(f"{len(outcomes) - len(failed)} of {len(names)} tests hold, in {time.monotonic() - began:.0f} s")
    for name, reason in failed.items():
        print(f"error: {name} does not hold: {reason}", file=sys.stderr)
    return 1 if failed else 0


def prepare(names: set[str], systems: set[str], directory: Path) -> Made:
    """Makes Debian, QEMU and the programs in parallel, since the first two mostly wait for the network. NixOS comes
    last, since it contains the same programs.
    """
    hosts = {name: Host(name) for name in names if name not in rendering.WHEN_NEEDED}
    hosts |= rendering.now(names & rendering.WHEN_NEEDED, directory)
    wanted = set().union(*(host.programs() for host in hosts.values()))
    with ThreadPoolExecutor() as pool:
        programs = pool.submit(debian.Programs)
        guest = pool.submit(debian.guest)
        ours = pool.submit(binaries.build, directory, wanted)
        others = pool.submit(binaries.others, wanted)
        built = ours.result() | others.result()
        return Made(programs.result(), guest.result(), built, hosts, nixos.disks(systems, directory))


sys.exit(main())
