"""Disks of NixOS itself, built without a binary cache (tests/nixos), where that can be done."""

import subprocess
from pathlib import Path

_BUILD = Path(__file__).resolve().parents[2] / ".ci/nixos.sh"


def disks(names: set[str], directory: Path) -> dict[str, Path]:
    """Of these systems; none where they cannot be built, which the script says."""
    made = {}
    for name in names:
        disk = directory / f"{name}.disk"
        subprocess.run([_BUILD, "--disk", disk, name], check=True)
        if disk.exists():
            made[name] = disk
    return made
