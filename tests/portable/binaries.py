"""Our programs, as cargo builds them: of the development profile, which the workspace's tests have built already."""

import json
import subprocess
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2] / "pkgs"
# Rust from nothing on two cores.
_BUILD_SECONDS = 1500


def _targets() -> dict[str, str]:
    """The package of each binary that a host may run."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--locked", "--format-version=1"],
        cwd=PACKAGES,
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        target["name"]: package["name"]
        for package in json.loads(metadata.stdout)["packages"]
        for target in package["targets"]
        if "bin" in target["kind"]
    }


def build(directory: Path, wanted: set[str]) -> dict[str, Path]:
    """Those of the wanted programs that are ours, built and without debug information, by name."""
    packages = _targets()
    ours = sorted(wanted & packages.keys())
    flags = [flag for name in ours for flag in ("--package", packages[name], "--bin", name)]
    built = subprocess.run(
        ["cargo", "build", "--locked", "--message-format=json-render-diagnostics", *flags],
        cwd=PACKAGES,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    stripped = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] in ours:
            name = message["target"]["name"]
            stripped[name] = directory / name
            subprocess.run(["strip", "-o", stripped[name], message["executable"]], check=True)
    return stripped
