#!/usr/bin/python3
"""json2toml.py INPUT OUTPUT: settings as JSON as the same in TOML, as far as Nix's modules write such: the program of that
name, from nixpkgs' remarshal, has dependencies that the machine that builds may not have."""

import json
import re
import sys
from typing import Any


def key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def value(of: Any) -> str:
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in of.items()) + " }"
    if isinstance(of, list):
        return "[" + ", ".join(value(inner) for inner in of) + "]"
    # Strings, numbers and booleans are written alike.
    return json.dumps(of)


def table(name: str, of: dict[str, Any]) -> list[str]:
    lines = [f"[{name}]"] if name else []
    lines += [f"{key(inner)} = {value(it)}" for inner, it in of.items() if not isinstance(it, dict)]
    for inner, it in of.items():
        if isinstance(it, dict):
            lines += ["", *table(f"{name}.{key(inner)}" if name else key(inner), it)]
    return lines


with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
    target.write("\n".join(table("", json.load(source))) + "\n")
