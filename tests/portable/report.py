"""Prints whole lines with the name of their test, since several tests run at once."""

import os

_about = ""
_skipped: set[str] = set()


def about(test: str) -> None:
    """Sets the test that this process reports on from now on."""
    global _about
    _about = f"{test}: "


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"vm-test: {_about}{line}", flush=True)


def skip(what: str, reason: str) -> None:
    """Reports once what was skipped; the end of `make test` counts it."""
    said = f"skipped: {what}: {reason}"
    if said not in _skipped:
        _skipped.add(said)
        print(said, flush=True)
        if path := os.environ.get("LINERATE_SKIPS"):
            with open(path, "a") as skips:
                print(said, file=skips)
