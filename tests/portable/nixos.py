"""Disks of NixOS itself, built without a binary cache (tests/nixos) where possible."""

import subprocess
from pathlib import Path

_BUILD = Path(__file__).resolve().parents[2] / ".ci/nixos.sh"


def disks(names: set[str], directory: Path) -> dict[str, Path]:
    """Returns the disks of these systems, or none if they cannot be built; the script then says why."""
    if not names:
        return {}
    made = directory / "disks"
    made.mkdir()
    if subprocess.run([_BUILD, "--disks", made, *sorted(names)], check=False).returncode != 0:
        raise SystemExit("error: NixOS's disks are not to be built")
    return {disk.name: disk for disk in made.iterdir()}
