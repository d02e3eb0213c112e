#!/usr/bin/env python3
"""features.py: every crate asks for the features of other crates that its own code needs.

Cargo compiles the workspace with the features of all its crates together. One that lacks a feature compiles there, but
not by itself, as the flake and `cargo build --package` compile it. To compile each by itself takes minutes, so this
reads the code. It knows some crates whose features have the names of their modules.

Without an argument it checks this tree; tests/test_features.py gives it others.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# By crate: modules that need the feature of the same name.
MODULES = {
    "rustix": set("event fs mm net param pipe process pty rand shm stdio system termios thread time".split()),
    "tokio": {"fs", "net", "process", "signal", "sync", "time"},
}
Toml = dict[str, Any]


def has(manifest: Toml, shared: Toml, crate: str, sections: list[str]) -> set[str]:
    """Returns the features of `crate` that these sections of a manifest ask for; `shared` is what they inherit from."""
    features = set()
    for section in sections:
        entry = manifest.get(section, {}).get(crate)
        if isinstance(entry, dict):
            features |= set(entry.get("features", []))
            if entry.get("workspace") and isinstance(shared.get(crate), dict):
                features |= set(shared[crate].get("features", []))
    return features


def used(text: str, crate: str) -> set[str]:
    """Returns the names right behind `crate::` in Rust code."""
    text = re.sub(r"//[^\n]*", "", text)
    names = set(re.findall(rf"(?<![\w:]){crate}::(\w+)", text))
    for group in re.finditer(rf"(?<![\w:]){crate}::\{{", text):
        depth, at, begins = 1, group.end(), True
        while depth and at < len(text):
            word = re.match(r"\w+", text[at:])
            if word:
                if depth == 1 and begins:
                    names.add(word[0])
                at, begins = at + len(word[0]), False
                continue
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            begins = begins and text[at].isspace() or text[at] == ","
            at += 1
    return names


def check(packages: Path) -> Iterator[str]:
    """Returns what crates lack."""
    shared = tomllib.loads((packages / "Cargo.toml").read_text())["workspace"].get("dependencies", {})
    for path in sorted(packages.glob("*/Cargo.toml")):
        manifest = tomllib.loads(path.read_text())
        for file in sorted(path.parent.rglob("*.rs")):
            place = file.relative_to(path.parent)
            if place.parts[0] not in {"src", "tests", "benches", "examples"}:
                continue
            text, tests = file.read_text(), ""
            if place.parts[0] != "src" or "tests" in place.with_suffix("").parts:
                text, tests = tests, text
            else:
                # They come last.
                text, _, tests = text.partition("#[cfg(test)]\nmod ")
            for part, sections in ((text, ["dependencies"]), (tests, ["dependencies", "dev-dependencies"])):
                for crate, modules in MODULES.items():
                    for module in sorted(used(part, crate) & modules - has(manifest, shared, crate, sections)):
                        where = file.relative_to(packages.parent)
                        yield f"{where} uses {crate}::{module}, and {path.parent.name} does not ask for that feature"


def main() -> int:
    packages = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "pkgs"
    wrong = list(check(packages))
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if not wrong:
        print("check-structure: every crate asks for the features that its code needs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
