#!/usr/bin/env python3
"""commands.py check|record DIRECTORY FILE...: runs the commands that documents show, with the programs in DIRECTORY.

It runs blocks that start with "```console run": lines after "$ " are commands, a backslash at the end continues on the
next line, and what follows is the expected output. There, `…` stands for anything, and on its own line for any lines; a
command without lines may print anything. All of a file's blocks are one bash session, in an empty directory that is
also its home. `make run` is `linerate up` here, and stays until the end, as does every command with ` &` after it. A
command that fails fails the check, unless the expected output shows the failure.

The session has its own network, so that no port is taken. `record` runs the blocks of FILE and writes them, as FILE
shows them, as a recording of a terminal: docs/recording.svg beside FILE. `check` compares it with FILE if it exists.
"""

import html
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# How long a command may take, and how long one in the background may take until it is ready: enough for debug builds of
# programs, on a machine that is also busy with something else.
DEADLINE_SECONDS = 30
# The time between two checks of a command.
POLL_SECONDS = 0.05


@dataclass
class Command:
    line: int
    text: str
    expected: list[str] = field(default_factory=list)
    printed: str = ""

    def background(self) -> bool:
        return self.text == "make run" or self.text.startswith("make run ") or self.text.endswith(" &")

    def says(self) -> bool:
        """Whether the output is what the document shows."""
        if not self.expected:
            return True
        pattern = ""
        for line in self.expected:
            if line.strip() == "…":
                pattern += r"(?:.*\n)*?"
            else:
                pattern += r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("…")) + r"\s*\n"
        printed = "".join(line.rstrip() + "\n" for line in self.printed.splitlines())
        # A command that continues to print may have printed more since.
        return bool(re.fullmatch(pattern + (r"(?:.*\n?)*" if self.background() else ""), printed))


def commands(document: Path) -> Iterator[Command]:
    """Returns the commands to run."""
    inside = False
    found: list[Command] = []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console run"
        elif inside and line.startswith("$ "):
            # What follows a comment sign is for people.
            found.append(Command(number, re.sub(r"\s{2,}# .*", "", line[2:])))
        elif inside and found and found[-1].text.endswith("\\"):
            found[-1].text = found[-1].text[:-1].rstrip() + " " + line.strip()
        elif inside and found:
            found[-1].expected.append(line)
    for command in found:
        while command.expected and not command.expected[-1].strip():
            command.expected.pop()
    yield from found


class Session:
    """A directory, and what runs in it."""

    def __init__(self, programs: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="linerate-docs-"))
        self.environment = {
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "PATH": f"{programs.resolve()}:{os.environ['PATH']}",
            "TERM": "dumb",
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, command: Command) -> None:
        text = re.sub(r"^make run\b", "linerate up --data up", command.text).removesuffix(" &")
        said = self.directory / f".said-{command.line}"
        with said.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"set -o pipefail; {text}"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            ended = process.poll()
            command.printed = said.read_text(errors="replace")
            if command.background() and ended is None and command.says():
                return
            if ended is not None:
                if command.background() or (ended != 0 and not command.expected):
                    raise AssertionError(f"it ended with {ended}, and printed:\n{command.printed}")
                if not command.says():
                    raise AssertionError(f"it printed:\n{command.printed}instead of:\n" + "\n".join(command.expected))
                return
            if time.monotonic() > end:
                raise AssertionError(f"after {DEADLINE_SECONDS} s it had printed:\n{command.printed}")
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        for process in reversed(self.running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(DEADLINE_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def ran(programs: Path, document: Path) -> list[Command]:
    """Returns all commands of a document, after running them."""
    all_of_it = list(commands(document))
    if not all_of_it:
        sys.exit(f"error: {document}: no block begins with '```console run'")
    session = Session(programs)
    try:
        for command in all_of_it:
            try:
                session.run(command)
            except AssertionError as wrong:
                sys.exit(f"error: {document}:{command.line}: {command.text}: {wrong}")
    finally:
        session.close()
    return all_of_it


# The picture: pixels, and seconds.
WIDTH, COLUMNS, LINE, TOP, LEFT = 860, 100, 20, 44, 18
TYPED, PRINTED = 0.9, 0.12


def recording(document: Path, all_of_it: list[Command]) -> str:
    """Returns a terminal in which the lines appear one after the other, without animation for people who don't want
    motion."""
    rows: list[tuple[bool, str, float]] = []
    now = 0.4
    for command in all_of_it:
        rows.append((True, command.text, now))
        now += TYPED
        # The output as the document shows it: the document leaves out lines that are too long, or that differ from run
        # to run.
        for shown in command.expected:
            rows.append((False, shown, now))
            now += PRINTED
        now += TYPED
    height = TOP + LINE * len(rows) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace"'
        ' font-size="13">',
        f"<title>{html.escape(document.name)}, run</title>",
        "<style>",
        "text { fill: #d7dde3; white-space: pre } .prompt { fill: #6cc24a }",
        ".command { fill: #ffffff; font-weight: bold }",
        "g { animation: appear 0.01s both } @keyframes appear { from { opacity: 0 } to { opacity: 1 } }",
        "@media (prefers-reduced-motion: reduce) { g { animation: none } }",
        "</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#14191f"/>',
        *(
            f'<circle cx="{LEFT + 6 + 18 * index}" cy="18" r="5" fill="{colour}"/>'
            for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
    ]
    for index, (typed, text, begins) in enumerate(rows):
        cut = text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"
        inner = html.escape(cut, quote=False)
        if typed:
            inner = f'<tspan class="prompt">$ </tspan><tspan class="command">{inner}</tspan>'
        y = TOP + LINE * index + 4
        lines.append(f'<g style="animation-delay: {begins:.2f}s"><text x="{LEFT}" y="{y}">{inner}</text></g>')
    return "\n".join([*lines, "</svg>", ""])


def picture_of(document: Path) -> Path:
    """Returns the path of a document's recording."""
    return document.parent / "docs/recording.svg"


def stale(document: Path) -> bool:
    """Whether a document has a recording that shows something else than the document."""
    picture = picture_of(document)
    return picture.exists() and picture.read_text() != recording(document, list(commands(document)))


def main() -> None:
    match sys.argv[1:]:
        case ["check", programs, *documents] if documents:
            for name in documents:
                print(f"docs: {name}: {len(ran(Path(programs), Path(name)))} commands print what it says")
                if stale(Path(name)):
                    sys.exit(f"error: {picture_of(Path(name))} does not show what {name} does: 'make docs ARGS=record'")
        case ["record", programs, name]:
            document = Path(name)
            picture_of(document).write_text(recording(document, ran(Path(programs), document)))
        case _:
            sys.exit("usage: commands.py check DIRECTORY FILE... | record DIRECTORY FILE")


def skipped(what: str, why: str) -> None:
    """Prints that it is skipped, and makes `make test` print it at its end."""
    said = f"skipped: {what}: {why}"
    print(said)
    if skips := os.environ.get("LINERATE_SKIPS"):
        with open(skips, "a") as file:
            file.write(f"{said}\n")


def alone() -> None:
    """Continues in a separate network, if the machine allows it."""
    if os.environ.get("LINERATE_DOCS_ALONE"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    os.environ["LINERATE_DOCS_ALONE"] = "1"
    command = ["unshare", "--net", "--map-root-user", sys.executable, "-B", *sys.argv]
    if subprocess.run(["unshare", "--net", "--map-root-user", "true"], capture_output=True).returncode == 0:
        os.execvp(command[0], command)
    skipped("what programs say", "a network of one's own is not to be had here")
    sys.exit(0)


if __name__ == "__main__":
    alone()
    main()
