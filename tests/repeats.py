#!/usr/bin/env python3
"""repeats.py: no ten lines of code appear twice in the tree without a reason.

Lines are compared as they are, without surrounding space. Blank lines, comments, imports and lone brackets don't count,
so that ten lines are ten meaningful ones. Generated and vendored files are left out.

Without an argument it checks this tree; tests/test_repeats.py gives it others.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEAST = 10
# What is code, and how a line starts that doesn't count. The rest of the tree is data, prose and pictures.
KINDS = {
    ".rs": re.compile(r"//|#!?\[|(pub(\([a-z]+\))? )?(use|mod) |[A-Za-z, ]+,?$(?<=,)"),
    ".py": re.compile(r"#|import |from |\"\"\""),
    ".sh": re.compile(r"#"),
    ".nix": re.compile(r"#"),
    ".js": re.compile(r"//|import "),
    ".sql": re.compile(r"--"),
}
LEFT_OUT = ("pkgs/console/assets/vendor/", "tests/rendered/")
# Pairs of files that may have lines in common, and why.
REASONS = {
    (
        "modules/services/console.nix",
        "modules/tuning/queues.nix",
    ): "a sandbox is read as a whole, and the two differ around these lines",
    (
        "pkgs/api/src/store/sqlite/connection.rs",
        "pkgs/links/src/store/sqlite/connection.rs",
    ): "no crate has SQLite but these two, and what they share is one loop and its test",
    (
        "pkgs/api/src/store/sqlite/migrations/0001_users.sql",
        "pkgs/api/tests/serve/before.sql",
    ): "what an older release made, which nothing may change",
    (
        "pkgs/bench/src/anybody.rs",
        "pkgs/postgres/src/tls.rs",
    ): "a program may not use the benches' crate, nor they a program's for this",
    (
        "pkgs/links/src/store/postgres/mod.rs",
        "pkgs/links/src/store/sqlite/mod.rs",
    ): "two databases with the same methods",
    (
        "pkgs/links/src/store/sqlite/schema.rs",
        "pkgs/links/src/store/sqlite/schema.rs",
    ): "migrations are only ever appended to",
}


def counted(text: str, ignored: re.Pattern[str]) -> list[tuple[int, str]]:
    """Returns the lines that count, with their numbers."""
    return [
        (number, line)
        for number, line in enumerate(map(str.strip, text.splitlines()), 1)
        if re.search(r"\w", line) and not ignored.match(line)
    ]


def repeats(files: dict[str, list[tuple[int, str]]]) -> Iterator[tuple[str, int, int, str, int, int]]:
    """Returns runs that appear in two places: for each, the file, and the first and last line."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for name, lines in files.items():
        texts = [text for _, text in lines]
        for at in range(len(texts) - LEAST + 1):
            places.setdefault(tuple(texts[at : at + LEAST]), []).append((name, at))
    # Each pair of places by its start; consecutive pairs are one run.
    pairs = {pair for found in places.values() if len(found) > 1 for pair in combinations(found, 2)}
    for (one, at), (other, there) in sorted(pairs):
        if ((one, at - 1), (other, there - 1)) in pairs:
            continue
        length = LEAST
        while ((one, at + length - LEAST + 1), (other, there + length - LEAST + 1)) in pairs:
            length += 1
        here, elsewhere = files[one], files[other]
        yield one, here[at][0], here[at + length - 1][0], other, elsewhere[there][0], elsewhere[there + length - 1][0]


def check(root: Path, reasons: dict[tuple[str, str], str]) -> list[str]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = {
        name: counted((root / name).read_text(), KINDS[Path(name).suffix])
        for name in tracked
        if Path(name).suffix in KINDS and not name.startswith(LEFT_OUT) and (root / name).is_file()
    }
    wrong, used = [], set()
    for one, begin, end, other, begins, ends in repeats(files):
        if (one, other) in reasons:
            used.add((one, other))
        else:
            wrong.append(f"{one}:{begin}-{end} stands again at {other}:{begins}-{ends}")
    for one, other in reasons.keys() - used:
        wrong.append(f"{one} and {other} have nothing in common any more: tests/repeats.py need not say why")
    return wrong


def main() -> None:
    wrong = check(ROOT, REASONS)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"check-structure: no {LEAST} lines of code stand twice, but for {len(REASONS)} pairs of files with a reason")


if __name__ == "__main__":
    main()
