#!/usr/bin/env python3
"""settings.py check|write DIRECTORY: compares modules/services/settings.json with what the programs in DIRECTORY
accept.

An evaluation can't ask a program, so the modules have the names of its settings in this file.
"""

import json
import pathlib
import re
import subprocess
import sys

KEPT = pathlib.Path(__file__).parents[1] / "modules/services/settings.json"
# Only for the command line.
NO_SETTINGS = {"check", "config", "explain", "help", "json", "machine", "version"}


def called(name):
    """Returns a service's program and command."""
    return ("linerate", "console") if name == "console" else (f"linerate-{name}", "serve")


def settings(directory, name):
    program, command = called(name)
    said = subprocess.run([directory / program, command, "--help"], capture_output=True, text=True, check=True).stdout
    # Where clap starts a flag, and not where its help mentions one.
    found = re.findall(r"^ {2,6}(?:-\w, | {4})?--([a-z0-9-]+)", said, re.MULTILINE)
    return sorted(set(found) - NO_SETTINGS)


def main():
    mode, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    old = json.loads(KEPT.read_text())
    new = {name: settings(directory, name) for name in sorted(old)}
    if mode == "write":
        KEPT.write_text(json.dumps(new, indent=2) + "\n")
        return
    wrong = [
        f"{' '.join(called(name))}: {what}: {', '.join(sorted(names))}"
        for name in old
        for what, names in (
            ("the modules do not know", set(new[name]) - set(old[name])),
            ("the modules know what it does not take", set(old[name]) - set(new[name])),
        )
        if names
    ]
    for line in wrong:
        print(f"error: {line}: 'tests/settings.py write pkgs/target/debug'", file=sys.stderr)
    sys.exit(1 if wrong else 0)


main()
