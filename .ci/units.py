#!/usr/bin/env python3
"""units.py PREFIX DIRECTORY: writes the services' units for a Linux without Nix into DIRECTORY.

They are those of tests/rendered, which the modules come to, so that sandbox, limits and restarts are written once. What
is NixOS's or that host's own is left out: paths into its store, its certificates, its sockets and its bound on memory,
which follows from settings there and not here.
"""

import re
import sys
from pathlib import Path

RENDERED = Path(__file__).parents[1] / "tests/rendered/vm/systemd/system"
SERVICES = ("links", "files", "api")
LEFT_OUT = re.compile(r"(X-|Requires=|LoadCredential=|MemoryMax=)")


def unit(name: str, prefix: str) -> str:
    lines: list[str] = []
    for line in (RENDERED / f"linerate-{name}.service").read_text().splitlines():
        if line.startswith("ExecStart="):
            line = f"ExecStart={prefix}/bin/linerate-{name} serve --config /etc/linerate/{name}.toml"
        elif line.startswith("ExecReload="):
            # kill(1) is of no package that every system has, and what every shell can do.
            line = "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'"
        elif line.startswith("After="):
            line = "After=network.target"
        elif line.startswith("[") and lines:
            lines.append("")
        if not LEFT_OUT.match(line):
            lines.append(line)
        if line == "[Unit]":
            lines.append(f"Documentation=man:linerate-{name}-serve(1)")
    text = "\n".join(lines) + "\n"
    if "/nix/store" in text:
        sys.exit(f"error: the unit of {name} has paths of Nix's store:\n{text}")
    return text


def main() -> None:
    prefix, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    for name in SERVICES:
        (directory / f"linerate-{name}.service").write_text(unit(name, prefix))


main()
