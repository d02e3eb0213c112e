"""What the suite says: whole lines, under the name of the test that they are about, since several run at a time."""

import os

_about = ""
_skipped: set[str] = set()


def about(test: str) -> None:
    """From here on, in this process, it is about this test."""
    global _about
    _about = f"{test}: "


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"vm-test: {_about}{line}", flush=True)


def skip(what: str, reason: str) -> None:
    """What is not seen here; once, and for who counts it at the end of `make test`."""
    said = f"skipped: {what}: {reason}"
    if said not in _skipped:
        _skipped.add(said)
        print(said, flush=True)
        if path := os.environ.get("LINERATE_SKIPS"):
            with open(path, "a") as skips:
                print(said, file=skips)
