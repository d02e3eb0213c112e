"""bom.py PARTITIONS REGISTRATION CARGO_LOCK OUT: what is in a version, as CycloneDX 1.6: writes the paths of the
store's closure with their references, and our programs' crates, to OUT. The same version gives the same bytes.

REGISTRATION is closureInfo's, PARTITIONS says which version it is.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def paths(registration: str) -> dict[str, list[str]]:
    """Returns each store path's references. Each entry has its path, hash, size, deriver, a count, and this many
    references."""
    lines = iter(registration.splitlines())
    found = {}
    for path in lines:
        for _ in range(3):
            next(lines)
        found[path] = [reference for _ in range(int(next(lines))) if (reference := next(lines)) != path]
    return found


def of_path(path: str) -> dict[str, Any]:
    """Returns its name and version as Nix divides them: the version starts with a dash and a digit."""
    name = Path(path).name[33:]
    match = re.fullmatch(r"(.+?)-(\d.*)", name)
    component = {"type": "library", "bom-ref": path, "name": match[1] if match else name}
    if match:
        component["version"] = match[2]
    return component | {"properties": [{"name": "nix:output_path", "value": path}]}


def of_crate(crate: dict[str, Any]) -> dict[str, Any]:
    purl = f"pkg:cargo/{crate['name']}@{crate['version']}"
    component = {"type": "library", "bom-ref": purl, "name": crate["name"], "version": crate["version"], "purl": purl}
    if "checksum" in crate:
        component["hashes"] = [{"alg": "SHA-256", "content": crate["checksum"]}]
    return component


def main() -> None:
    partitions, registration, lock, out = map(Path, sys.argv[1:])
    image = json.loads(partitions.read_text())
    closure = paths(registration.read_text())
    crates = tomllib.loads(lock.read_text())["package"]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "operating-system", "name": image["id"], "version": image["version"]}},
        "components": [of_path(path) for path in sorted(closure)] + [of_crate(crate) for crate in crates],
        "dependencies": [{"ref": path, "dependsOn": sorted(closure[path])} for path in sorted(closure)],
    }
    out.write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n")


main()
