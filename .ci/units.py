#!/usr/bin/env python3
"""units.py PREFIX DIRECTORY: writes the services' units for a Linux without Nix into DIRECTORY.

They are those in tests/rendered, which the modules produce, so that sandbox, limits and restarts are written once. What
is specific to NixOS or that host is left out: paths into its store, its certificates, its sockets, its cores and its
memory limit, which depends on its settings.
"""

import re
import sys
from pathlib import Path

RENDERED = Path(__file__).parents[1] / "tests/rendered"
ANYWHERE = r"X-|"
# Lines of a service's unit that only apply to that host.
OF_SERVICE = re.compile(ANYWHERE + "Requires=|Wants=|LoadCredential=|MemoryMax=")
# The console and its helpers keep their memory limits and sockets on every system; only the CPUs differ.
OF_CONSOLE = re.compile(ANYWHERE + "CPUAffinity=")

# By unit: its host, the command, the manual page, and what is left out.
UNITS = {
    **{
        f"linerate-{name}.service": (
            "vm",
            f"linerate-{name} serve --config /etc/linerate/{name}.toml --handover /run/linerate-{name}/handover",
            f"linerate-{name}-serve",
            OF_SERVICE,
        )
        for name in ("links", "files", "api")
    },
    "linerate-console.service": ("console", "linerate console --config /etc/linerate/console.toml", "linerate-console", OF_CONSOLE),
    "linerate-console-helper.service": ("console", None, "linerate-console-helper", OF_CONSOLE),
    "linerate-console-helper.socket": ("console", None, "linerate-console-helper", OF_CONSOLE),
    "linerate-files-writer.service": ("console", None, "linerate-files-writer", OF_CONSOLE),
    "linerate-files-writer.socket": ("console", None, "linerate-files-writer", OF_CONSOLE),
}  # fmt: skip


def command(rendered: str, prefix: str) -> str:
    """Returns the command with this system's program, and without the profile, which only NixOS has."""
    program, *arguments = rendered.split()
    line = " ".join([f"{prefix}/bin/{program.rsplit('/', 1)[-1]}", *arguments])
    return line.replace(" --profile /etc/linerate/profile.json", "")


def unit(name: str, prefix: str) -> str:
    host, own, page, left_out = UNITS[name]
    lines: list[str] = []
    for line in (RENDERED / host / "systemd/system" / name).read_text().splitlines():
        if line.startswith("ExecStart="):
            line = f"ExecStart={prefix}/bin/{own}" if own else f"ExecStart={command(line.removeprefix('ExecStart='), prefix)}"
        elif line.startswith("ExecReload=") and own and " serve " in own:
            line = f"ExecReload={prefix}/bin/{own.replace(' serve ', ' reload ', 1)}"
        elif line.startswith("ExecReload="):
            # Not every system has a package with kill(1), but every shell has it built in.
            line = "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'"
        elif line.startswith("After="):
            # Only units that exist on a system without Nix.
            line = " ".join(["After=network.target", *({"linerate-links.service"} & set(line[6:].split()))])
        elif line.startswith("[") and lines:
            lines.append("")
        if not left_out.match(line):
            lines.append(line)
        if line == "[Unit]":
            lines.append(f"Documentation=man:{page}(1)")
    text = "\n".join(lines) + "\n"
    if "/nix/store" in text:
        sys.exit(f"error: {name} has paths of Nix's store:\n{text}")
    return text


def main() -> None:
    prefix, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    for name in UNITS:
        (directory / name).write_text(unit(name, prefix))


main()
