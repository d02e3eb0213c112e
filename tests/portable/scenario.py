"""Runs one test: makes its machines, runs its script on them, and removes them."""

import math
import shlex
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from catalogue import BY_NAME, SCRIPT_OF, Role
from debian import Guest, Programs
from errors import Failure, Hang
from host import Files, Host
from machine import Machine, empty_disk
from network import Switch, switch
from report import say
from system import Debian, NixOS, System

SCRIPTS = Path(__file__).resolve().parents[1] / "vm"
# Timeout of a script, in seconds: five times what the longest takes on two busy cores. Some machines are half as fast
# for an hour.
SCRIPT_SECONDS = 5400
# Timeout of a test that runs only when named, for twenty power cuts, each with an update and a boot.
NAMED_SECONDS = 4 * 3600


class Made(NamedTuple):
    """What all tests share."""

    programs: Programs
    guest: Guest
    ours: dict[str, Path]
    hosts: dict[str, Host]
    # Disks of NixOS itself, by name.
    disks: dict[str, Path]


class Laboratory:
    """What the machines of one test share."""

    def __init__(self, made: Made, switch: Switch, directory: Path) -> None:
        self.made = made
        self.switch = switch
        self.directory = directory

    def machine(self, name: str, number: int, role: Role, others: list[str]) -> Machine:
        if role.installed_by:
            disk = self.directory / role.installed_by / empty_disk(0)
            system: System = NixOS(disk, "qcow2", role.disk_mib)
        elif role.nixos:
            disks = self.made.disks
            system = NixOS(disks[role.nixos], "raw", role.disk_mib, disks.get(f"{role.nixos}.updates"), role.secure_boot)
        else:
            system = self._debian(name, number, role, others)
        return Machine(
            name,
            number,
            self.directory / name,
            role.hardware,
            self.switch,
            self.made.programs,
            system,
        )

    def _debian(self, name: str, number: int, role: Role, others: list[str]) -> Debian:
        files, parameters = Files(), []
        if role.host:
            host = self.made.hosts[role.host]
            files = host.install(self.made.ours, self.made.guest.tree)
            parameters = host.kernel_parameters()
        _identify(files, name, number, role, others)
        payload = self.directory / f"{name}.tar"
        files.write(payload)
        return Debian(self.made.guest, payload, parameters)


def _identify(files: Files, name: str, number: int, role: Role, others: list[str]) -> None:
    """Sets the machine's name and addresses as NixOS's tests do: 192.168.1.1 for the first by name, and so on."""
    files.add("/etc/hostname", f"{name}\n")
    files.add(
        "/etc/hosts",
        "127.0.0.1 localhost\n" + "".join(f"192.168.1.{index + 1} {other}\n" for index, other in enumerate(others)),
    )
    variables = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in role.variables.items())
    for script, path in role.scripts.items():
        text = (SCRIPTS.parents[1] / path).read_text()
        files.add(f"/usr/local/bin/{script}", f"#!/bin/bash\n{variables}{text}", 0o755)
    for program, path in role.programs.items():
        files.add(f"/usr/local/bin/{program}", (SCRIPTS.parents[1] / path).read_text(), 0o755)
    for card in range(len(role.hardware.cards)):
        files.add(
            f"/etc/systemd/network/50-card{card}.network",
            f"[Match]\nPermanentMACAddress=52:54:00:00:{number:02x}:{card + 1:02x}\n"
            f"[Network]\nAddress=192.168.{card + 1}.{number}/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
        )


@contextmanager
def machines(roles: dict[str, Role], made: Made) -> Iterator[list[Machine]]:
    """Makes machines of these roles, and removes them at the end of the context."""
    with tempfile.TemporaryDirectory(prefix="linerate-test-") as directory:
        laboratory = Laboratory(made, switch(Path(directory)), Path(directory))
        names = sorted(roles)
        built = [laboratory.machine(each, index + 1, roles[each], names) for index, each in enumerate(names)]
        try:
            yield built
        finally:
            for machine in built:
                machine.crash()


class Outcome(NamedTuple):
    """The result of a script."""

    # Why it failed, in one line; none if it passed.
    reason: str | None = None
    # Whether it failed because a machine hung.
    hung: bool = False
    # Whether it was ended because no time was left.
    ended: bool = False


def run(name: str, machines: list[Machine], left: float) -> Outcome:
    """Runs a script, for as many seconds as are left at the most."""
    end = time.monotonic() + left
    most = NAMED_SECONDS if name in BY_NAME else SCRIPT_SECONDS
    try:
        # Rounded up, so that the end has come by then.
        with _limit(max(1, math.ceil(min(most, left)))):
            _execute(SCRIPTS / f"{SCRIPT_OF.get(name, name)}.py", machines)
        return Outcome()
    except Exception as error:
        # Before anything is explained, which may take minutes.
        if time.monotonic() >= end:
            return Outcome(ended=True)
        return Outcome(_explain(error, machines), isinstance(error, Hang))


def _execute(script: Path, machines: list[Machine]) -> None:
    names: dict[str, Any] = {machine.name: machine for machine in machines}

    def start_all() -> None:
        for machine in machines:
            machine.start()

    exec(
        compile(script.read_text(), script, "exec"),
        names | {"machines": machines, "start_all": start_all, "subtest": _subtest, "retry": _retry},
    )


@contextmanager
def _subtest(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{time.monotonic() - began:6.1f} s  {what}")


def _retry(done: Callable[[bool], bool], timeout: int = 300) -> None:
    """Calls `done` until it returns true. The argument says whether this is the last attempt."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if done(False):
            return
        time.sleep(0.5)
    if not done(True):
        raise Failure(f"not done within {timeout} s")


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def over(_signal: int, _frame: FrameType | None) -> None:
        raise Failure(f"the script takes longer than {seconds} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _explain(error: Exception, machines: list[Machine]) -> str:
    """Prints the machines' logs, and where and why the script failed. Returns the reason as one line."""
    for machine in machines:
        say("\n".join([f"{machine.name}'s console and journal end so:", *machine.last_words()]))
    if not isinstance(error, (Failure, AssertionError)):
        say("".join(traceback.format_exception(error)))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if str(SCRIPTS) in frame.filename]
    for frame in frames:
        say(f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}")
    say(f"{type(error).__name__}: {error}")
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{' '.join(str(error).split()) or type(error).__name__}"
