#!/usr/bin/env python3
"""Checks tests/nixos's builds.

closure.py fetches DERIVATION...: ends with an error that names each derivation that would fetch, and what wants it.
closure.py check HOST SYSTEM: compares the names in its closure with closures/HOST, and its size with BOUND_MIB.
closure.py write HOST SYSTEM: writes that file.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

CLOSURES = Path(__file__).with_name("closures")
# The limit for each host's size on disk: about 5 % more than when this was written.
BOUND_MIB = {"aws-c6i": 507, "installer": 549, "template": 475, "tengbe": 507, "vm": 523}
# Scripts, units and settings, which tests/rendered has, and which are a few bytes each.
SMALL_BYTES = 16384


def nix(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def name_of(path: str) -> str:
    """Returns a store path's name, without its hash."""
    return path.rsplit("/", 1)[-1][33:]


def fetches(derivations: list[str]) -> None:
    graph = json.loads(nix("nix", "show-derivation", "--recursive", *derivations))
    wanted_by: dict[str, list[str]] = {}
    for path, derivation in graph.items():
        for needed in derivation["inputDrvs"]:
            wanted_by.setdefault(needed, []).append(path)
    # Nix gives network access to derivations whose output is known by its hash.
    fetching = [
        path
        for path, derivation in graph.items()
        if derivation["builder"].startswith("builtin:fetch")
        or any("hash" in output for output in derivation["outputs"].values())
    ]
    for path in sorted(fetching, key=name_of):
        chain, at = [], path
        while at in wanted_by and len(chain) < 6:
            at = wanted_by[at][0]
            chain.append(name_of(at).removesuffix(".drv"))
        print(f"error: {name_of(path)} would fetch, for {' for '.join(chain) or 'itself'}", file=sys.stderr)
    if fetching:
        sys.exit(1)
    print(f"{len(graph)} derivations, none of which fetches")


def closure(system: str) -> dict[str, int]:
    """Returns bytes by name."""
    listed = json.loads(nix("nix", "path-info", "--json", "--recursive", system))
    # A list before Nix 2.19.
    paths = listed if isinstance(listed, dict) else {one["path"]: one for one in listed}
    names: dict[str, int] = {}
    seen, ahead = {system}, [system]
    while ahead:
        path = ahead.pop()
        names[name_of(path)] = names.get(name_of(path), 0) + paths[path]["narSize"]
        # The initrd needs nothing beside it, and it is chance which store paths in it stay readable after compression.
        if name_of(path).startswith("initrd-linux-"):
            continue
        new = set(paths[path]["references"]) - seen
        seen |= new
        ahead += new
    return names


def judge(mode: str, host: str, system: str) -> None:
    names = closure(system)
    mib = sum(names.values()) >> 20
    # Without versions, since the mirror that packages come from may have newer ones.
    plain = {re.sub(r"(-\d[^-]*)+", "", name) for name, size in names.items() if size > SMALL_BYTES}
    listed = "".join(f"{name}\n" for name in sorted(plain))
    file = CLOSURES / host
    if mode == "write":
        CLOSURES.mkdir(exist_ok=True)
        file.write_text(listed)
    print(f"nixos: {host}: {len(names)} names, {mib} MiB of at most {BOUND_MIB[host]}")
    wrong = []
    kept = set(file.read_text().splitlines()) if file.exists() else set()
    wrong += [f"{name} is new in it" for name in sorted(set(listed.splitlines()) - kept)]
    wrong += [f"{name} is no more in it" for name in sorted(kept - set(listed.splitlines()))]
    wrong += [f"{name} is of the machine that built it" for name in names if re.search("-of-the-machine$", name)]
    if mib > BOUND_MIB[host]:
        wrong.append(f"it takes {mib} MiB")
    for one in wrong:
        print(f"error: the closure of {host}: {one}", file=sys.stderr)
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "fetches":
        fetches(sys.argv[2:])
    else:
        judge(*sys.argv[1:])
