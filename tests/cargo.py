#!/usr/bin/env python3
"""cargo.py: all Rust tests of the workspace, several programs at a time.

`cargo test` runs one test program after the other, and most of them wait: for deadlines, for clients that drip, for a
server that comes back. Two processors were busy for a third of that time. Here each program still has as many threads
as it likes, and AT_ONCE of them run concurrently. A program's output is shown completely when it has ended; failures
are named once more at the end.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PKGS = Path(__file__).resolve().parent.parent / "pkgs"
# With more programs at once, tests that need the CPU slow down tests that depend on time.
AT_ONCE = 3
# More than any program needs on a busy machine. A program that hangs should be reported before CI ends the whole run.
LONGEST_SECONDS = 3600
# That long before the end.
REPORT_SECONDS = 120


@dataclass(frozen=True)
class Program:
    """A test program built by cargo."""

    name: str
    executable: Path
    # Cargo runs it in its package.
    package: Path
    is_integration: bool


@dataclass(frozen=True)
class Outcome:
    """The result of a test program."""

    program: Program
    status: int
    seconds: float
    output: str


def build(*selected: str) -> list[Program]:
    """Builds test programs; those that test whole services come first, since they take longest."""
    command = ["cargo", "test", *selected, "--locked", "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=PKGS, stdout=subprocess.PIPE, text=True, check=True)
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            package, target = Path(message["manifest_path"]).parent, message["target"]
            programs.append(
                Program(
                    name=f"{package.relative_to(PKGS)}: {target['name']}",
                    executable=Path(message["executable"]),
                    package=package,
                    is_integration="test" in target["kind"],
                )
            )
    return sorted(programs, key=lambda program: (not program.is_integration, program.name))


def patience() -> float:
    """How long a program may take: LINERATE_UNTIL says when everything is ended from outside, in seconds since 1970."""
    left = float(os.environ.get("LINERATE_UNTIL", "inf")) - time.time()
    return min(LONGEST_SECONDS, max(60, left - REPORT_SECONDS))


def run(program: Program) -> Outcome:
    """Runs one to its end, whatever it leaves behind."""
    begun = time.monotonic()
    # A file, since processes that are left behind would hold a pipe open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [program.executable],
            cwd=program.package,
            env={**os.environ, "CARGO_MANIFEST_DIR": str(program.package)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(patience())
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
            output.write(b"\nkilled: it was stuck\n")
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Outcome(program, status, time.monotonic() - begun, said)


def main() -> int:
    programs = build("--workspace")
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for outcome in pool.map(run, programs):
            print(f"== {outcome.program.name}: {outcome.seconds:.1f} s\n{outcome.output}", flush=True)
            if outcome.status != 0:
                failed.append(outcome.program.name)
    documented = subprocess.run(
        ["cargo", "test", "--workspace", "--locked", "--doc"], cwd=PKGS, stdin=subprocess.DEVNULL, check=False
    )
    if documented.returncode != 0:
        failed.append("documentation")
    print(f"{len(programs)} programs, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
