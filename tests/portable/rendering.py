"""Renders hosts when they are needed: they contain NixOS's own scripts, which this repository does not store."""

import subprocess
from pathlib import Path

from host import RENDERED, Host

# Their names in .ci/nix.sh.
WHEN_NEEDED = {"companions", "console", "late"}
# Its exit code if there is no nixpkgs.
_NO_NIXPKGS = 3


def now(names: set[str], directory: Path) -> dict[str, Host]:
    """Returns these hosts, or none if they cannot be rendered."""
    hosts = {}
    for name in names:
        command = [str(RENDERED.parents[1] / ".ci/nix.sh"), "host", name, str(directory)]
        if (status := subprocess.run(command, check=False).returncode) == _NO_NIXPKGS:
            continue
        if status:
            raise subprocess.CalledProcessError(status, command)
        hosts[name] = Host(name, directory)
    return hosts
