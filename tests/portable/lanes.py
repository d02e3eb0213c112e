"""Chains of tests, two at a time: one at a time they used some 1.2 of two CPUs."""

import ctypes
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import scenario
from catalogue import GOING_ON, TESTS
from report import about, say
from scenario import Made

LANES = 2
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def run(names: list[str], made: Made) -> dict[str, str]:
    """Runs these tests; returns those that do not hold, and why."""
    # A process each: a lane has a network namespace of its own, and an alarm for its scripts.
    with ProcessPoolExecutor(LANES, get_context("fork"), _end_with, (os.getpid(),)) as pool:
        failed = pool.map(partial(_lane, made), chains(names))
        return {name: reason for each in failed for name, reason in each.items()}


def chains(names: list[str]) -> list[list[str]]:
    """The tests by what may run on the same machines, one after the other."""
    made: list[list[str]] = []
    for name in names:
        if made and name in GOING_ON and TESTS[name] == TESTS[made[-1][0]]:
            made[-1].append(name)
        else:
            made.append([name])
    return made


def _end_with(driver: int) -> None:
    """A lane ends with the driver, however that ends, and its guests with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os.kill(os.getpid(), signal.SIGKILL)


def _lane(made: Made, names: list[str]) -> dict[str, str]:
    failed: dict[str, str] = {}
    remaining = list(names)
    # Emulated machines hang once in a great many hours, as they do in boots (machine.py): a test gets others once.
    hung: set[str] = set()
    while remaining:
        about(remaining[0])
        with scenario.machines(TESTS[remaining[0]], made) as machines:
            while remaining:
                name = remaining.pop(0)
                about(name)
                say("begins")
                start = time.monotonic()
                reason, machine_hung = scenario.run(name, machines)
                seconds = time.monotonic() - start
                if machine_hung and name not in hung:
                    hung.add(name)
                    remaining.insert(0, name)
                    say(f"A MACHINE HANGS, after {seconds:.0f} s: once more, on others")
                    break
                say(f"{'DOES NOT HOLD' if reason else 'holds'}, {seconds:.0f} s")
                if reason:
                    failed[name] = reason
                    # The next one gets machines that nothing went wrong on.
                    break
    return failed
