"""Hosts that are rendered when they are needed: what NixOS itself puts into them is not ours to keep."""

import subprocess
from pathlib import Path

from host import RENDERED, Host

# As .ci/nix.sh knows them.
WHEN_NEEDED = {"companions", "console", "late"}
# What it ends with where there is no nixpkgs.
_NO_NIXPKGS = 3


def now(names: set[str], directory: Path) -> dict[str, Host]:
    """These hosts, or none where they cannot be rendered."""
    hosts = {}
    for name in names:
        command = [str(RENDERED.parents[1] / ".ci/nix.sh"), "host", name, str(directory)]
        if (status := subprocess.run(command, check=False).returncode) == _NO_NIXPKGS:
            continue
        if status:
            raise subprocess.CalledProcessError(status, command)
        hosts[name] = Host(name, directory)
    return hosts
