"""Our programs, as cargo builds them for the tests of the workspace, which `make test` runs before."""

import json
import subprocess
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2] / "pkgs"
# Rust from nothing on two cores.
_BUILD_SECONDS = 1500


def _binaries() -> set[str]:
    """The binaries that a host may run."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--locked", "--format-version=1"],
        cwd=PACKAGES,
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        target["name"]
        for package in json.loads(metadata.stdout)["packages"]
        for target in package["targets"]
        if "bin" in target["kind"]
    }


def build(directory: Path, wanted: set[str]) -> dict[str, Path]:
    """Those of the wanted programs that are ours, built and without debug information, by name."""
    ours = wanted & _binaries()
    # Built by themselves, their dependencies would have other features than in the tests, and be built again.
    built = subprocess.run(
        ["cargo", "test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"],
        cwd=PACKAGES,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    stripped = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        name = message.get("target", {}).get("name")
        # The tests of a binary have its name too.
        if name in ours and message.get("executable") and not message["profile"]["test"]:
            stripped[name] = directory / name
            subprocess.run(["strip", "-o", stripped[name], message["executable"]], check=True)
    return stripped
