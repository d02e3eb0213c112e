#!/usr/bin/env python3
"""locks.py: lockfiles outside the workspace contain what the crates of this tree need.

Fuzz targets and the router's bench are separate workspaces, which no other build touches: if a crate gets, loses or
raises a dependency, their lockfiles become outdated, and `cargo --locked` refuses them months later. This compares
names and versions in manifests and lockfiles, without asking a registry. `cargo update --workspace` repairs one.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Toml = dict[str, Any]
# By package name: the required version, None for ours; and whether it is needed without a feature.
Needs = dict[str, tuple[str | None, bool]]


def needs(manifest: Toml, shared: Toml, tests: bool) -> Needs:
    """Returns what a manifest requires; `shared` is what it inherits from, `tests` whether its tests count."""
    found: Needs = {}
    for section in ("dependencies", "build-dependencies", *(["dev-dependencies"] if tests else [])):
        for name, entry in manifest.get(section, {}).items():
            optional = isinstance(entry, dict) and entry.get("optional", False)
            if isinstance(entry, dict) and entry.get("workspace"):
                entry = shared[name]
            entry = entry if isinstance(entry, dict) else {"version": entry}
            package = entry.get("package", name)
            needed = not optional or found.get(package, (None, False))[1]
            found[package] = (entry.get("version"), needed)
    return found


def satisfies(version: str, asked: str) -> bool:
    """Whether Cargo accepts a version for `asked`: no older, and the same up to the first number that isn't 0."""
    has, least = ([int(part) for part in re.findall(r"\d+", text)[:3]] for text in (version.split("+")[0], asked))
    kept = next((index + 1 for index, part in enumerate(least) if part), len(least))
    return has[:kept] == least[:kept] and has >= least


def check(packages: Path) -> Iterator[str]:
    """Returns what is wrong with each lockfile except the workspace's."""
    shared = tomllib.loads((packages / "Cargo.toml").read_text())["workspace"].get("dependencies", {})
    for lockfile in sorted(packages.glob("*/*/Cargo.lock")):
        own = lockfile.with_name("Cargo.toml")
        manifests = [tomllib.loads(one.read_text()) for one in (*packages.glob("*/Cargo.toml"), own)]
        by_name = {one["package"]["name"]: one for one in manifests}
        locked = tomllib.loads(lockfile.read_text())["package"]
        versions: dict[str, list[str]] = {}
        for package in locked:
            versions.setdefault(package["name"], []).append(package["version"])
        where = lockfile.relative_to(packages.parent)
        for package in locked:
            if "source" in package:
                continue
            name = package["name"]
            if name not in by_name:
                yield f"{where}: no crate is called {name} any more"
                continue
            asked = needs(by_name[name], shared, tests=by_name[name] is manifests[-1])
            # "NAME", or "NAME VERSION" if there are several.
            has = {words[0]: words[1:] for words in (line.split() for line in package.get("dependencies", []))}
            for other in sorted(has.keys() - asked.keys()):
                yield f"{where}: {name} does not need {other} any more"
            for other, (version, needed) in sorted(asked.items()):
                if other not in has:
                    if needed:
                        yield f"{where}: {name} needs {other}, which is missing"
                elif version and not satisfies((has[other] or versions[other])[0], version):
                    yield f"{where}: {name} needs {other} {version}, and it is {(has[other] or versions[other])[0]}"


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    wrong = list(check(root / "pkgs"))
    for line in wrong:
        print(f"error: {line}: 'cargo update --workspace' beside it mends it", file=sys.stderr)
    if wrong:
        sys.exit(1)
    count = len(list((root / "pkgs").glob("*/*/Cargo.lock")))
    print(f"check-structure: {count} lockfiles outside the workspace have what the crates need")


if __name__ == "__main__":
    main()
