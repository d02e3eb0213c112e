"""provenance.py PARTITIONS BUILDER SOURCE FLAKE_LOCK CARGO_LOCK OUT: who built a version and from what, as an in-toto
statement (v1) with SLSA provenance (v1), except for the digests of its files: assemble.sh adds those, once they are
signed.

SOURCE may be empty. The same version gives the same bytes, so it has no times and no build number.
"""

import base64
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

# Defines the meaning of the parameters: those of linerate.appliance.image.
BUILD_TYPE = "urn:linerate:appliance-image:1"


def of_input(name: str, locked: dict[str, Any]) -> dict[str, Any]:
    """Returns a flake's input, as Nix has locked it; its hash is that of an archive in Nix's own format."""
    host = {"github": "https://github.com", "gitlab": "https://gitlab.com", "sourcehut": "https://git.sr.ht"}
    found: dict[str, Any] = {"name": name, "digest": {}}
    if locked["type"] in host:
        found["uri"] = f"git+{host[locked['type']]}/{locked['owner']}/{locked['repo']}"
    elif "url" in locked:
        found["uri"] = locked["url"]
    if "rev" in locked:
        found["digest"]["gitCommit"] = locked["rev"]
    if "narHash" in locked:
        kind, _, text = locked["narHash"].partition("-")
        found["digest"][f"nix-nar-{kind}"] = base64.b64decode(text).hex()
    return found


def inputs(lock: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = sorted(lock["nodes"].items())
    return [of_input(name, node["locked"]) for name, node in nodes if "locked" in node]


def crates(lock: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns those that are fetched; ours are part of the source itself."""
    return [
        {"uri": f"pkg:cargo/{crate['name']}@{crate['version']}", "digest": {"sha256": crate["checksum"]}}
        for crate in lock["package"]
        if "checksum" in crate
    ]


def main() -> None:
    partitions, builder, source, flake, cargo, out = sys.argv[1:]
    image = json.loads(Path(partitions).read_text())
    parameters = {"id": image["id"], "version": image["version"], "architecture": image["architecture"]}
    if source:
        parameters["source"] = source
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": [],
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": parameters,
                "resolvedDependencies": inputs(json.loads(Path(flake).read_text()))
                + crates(tomllib.loads(Path(cargo).read_text())),
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
    Path(out).write_text(json.dumps(statement, sort_keys=True) + "\n")


main()
