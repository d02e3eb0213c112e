"""Runs chains of tests, two at a time, since a single chain uses only about 1.2 of two CPUs.

Three at a time leave no CPU idle, where two leave a tenth, and yet take longer: emulated CPUs wait for one another.
"""

import ctypes
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import scenario
from catalogue import GOING_ON, LONG, TESTS
from report import about, say, skip
from scenario import Made

LANES = 2
# How long a test may take on a machine that is half as fast as usual. With less time left, it doesn't begin.
USUAL_SECONDS, LONG_SECONDS = 600, 1500
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def run(names: list[str], made: Made) -> dict[str, str | None]:
    """Runs these tests. Returns those that ran, with why they failed. LINERATE_UNTIL may say when all of this is ended
    from outside, in seconds since 1970: tests that may not have ended by then, or have not, are skipped.
    """
    # Each lane is a process, since it needs its own network namespace and its own alarm for scripts.
    with ProcessPoolExecutor(LANES, get_context("fork"), _end_with, (os.getpid(),)) as pool:
        outcomes = pool.map(partial(_lane, made), chains(names))
        return {name: reason for each in outcomes for name, reason in each.items()}


def chains(names: list[str]) -> list[list[str]]:
    """Groups tests that may run on the same machines, one after the other."""
    made: list[list[str]] = []
    for name in names:
        if made and name in GOING_ON and TESTS[name] == TESTS[made[-1][0]]:
            made[-1].append(name)
        else:
            made.append([name])
    return made


def _end_with(driver: int) -> None:
    """Has the kernel end the lane and its guests when the driver ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os.kill(os.getpid(), signal.SIGKILL)


def _left() -> float:
    """How many seconds are left."""
    return float(os.environ.get("LINERATE_UNTIL", "inf")) - time.time()


def _in_time(names: list[str]) -> list[str]:
    """Those that end in time if the first of them begins now. Reports the others."""
    left = _left()
    while names and left < (LONG_SECONDS if names[0] in LONG else USUAL_SECONDS):
        skip(f"vm-{names[0]}", f"in {left / 60:.0f} minutes all of this is ended, and it might take longer")
        names = names[1:]
    return names


def _lane(made: Made, names: list[str]) -> dict[str, str | None]:
    outcomes: dict[str, str | None] = {}
    remaining = list(names)
    # Emulated machines very rarely hang, as in boots (machine.py). A test gets new machines once.
    hung: set[str] = set()
    while remaining := _in_time(remaining):
        about(remaining[0])
        with scenario.machines(TESTS[remaining[0]], made) as machines:
            while remaining := _in_time(remaining):
                name = remaining.pop(0)
                about(name)
                say("begins")
                start = time.monotonic()
                reason, machine_hung, ended = scenario.run(name, machines, _left())
                seconds = time.monotonic() - start
                if ended:
                    skip(f"vm-{name}", f"all of this is ended, {seconds:.0f} s after it began")
                    break
                if machine_hung and name not in hung:
                    hung.add(name)
                    remaining.insert(0, name)
                    say(f"A MACHINE HANGS, after {seconds:.0f} s: once more, on others")
                    break
                say(f"{'DOES NOT HOLD' if reason else 'holds'}, {seconds:.0f} s")
                outcomes[name] = reason
                if reason:
                    # After a failure, the next test gets new machines.
                    break
    return outcomes
