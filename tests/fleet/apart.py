"""What tests of several boxes share: a separate network, programs that end with it, and waiting."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

RENDERED = Path(__file__).parents[1] / "rendered"
# The longest that anything may take to appear, on a busy machine.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.05
# Set in the namespaces that a test runs in.
APART = "LINERATE_TEST_APART"
T = TypeVar("T")


def skip(name: str, reason: str) -> None:
    said = f"skipped: {name}: {reason}"
    print(said)
    if path := os.environ.get("LINERATE_SKIPS"):
        with open(path, "a") as skips:
            skips.write(said + "\n")
    sys.exit(0)


def apart(name: str) -> None:
    """Continues with its own network, mounts and process table; what is started there ends with it."""
    if APART in os.environ:
        # The names of network namespaces, and the state of daemons, belong to this test too.
        for directory in ("/run", "/var/lib"):
            shell(f"mount -t tmpfs tmpfs {directory}")
        shell("mkdir -p /run/netns && ip link set lo up")
        return
    namespaces = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run(["unshare", *namespaces, "true"], capture_output=True).returncode:
        skip(name, "namespaces are not allowed")
    done = subprocess.run(["unshare", *namespaces, sys.executable, "-B", *sys.argv], env=os.environ | {APART: "1"})
    sys.exit(done.returncode)


def shell(script: str) -> str:
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {script}: {done.stderr.strip()}")
    return done.stdout


def until(what: str, look: Callable[[], T | None], patience: float = PATIENCE_SECONDS) -> T:
    """Waits until a check finds something, and returns it."""
    end = time.monotonic() + patience
    while True:
        if (found := look()) is not None:
            return found
        if time.monotonic() > end:
            sys.exit(f"error: after {patience} s there is not: {what}")
        time.sleep(POLL_SECONDS)


def got(url: str) -> str | None:
    """Returns the content of a URL, if it answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except (OSError, urllib.error.URLError):
        return None
