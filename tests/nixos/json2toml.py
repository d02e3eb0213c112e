#!/usr/bin/python3
"""json2toml.py INPUT OUTPUT, or remarshal -i INPUT -if json -of toml -o OUTPUT: converts JSON to TOML, as far as Nix's
modules and crane use it: the programs with these names, from nixpkgs' remarshal, have dependencies that the building
machine may not have."""

import argparse
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
    # Strings, numbers and booleans are written the same way.
    return json.dumps(of)


def table(name: str, of: dict[str, Any]) -> list[str]:
    lines = [f"[{name}]"] if name else []
    lines += [f"{key(inner)} = {value(it)}" for inner, it in of.items() if not isinstance(it, dict)]
    for inner, it in of.items():
        if isinstance(it, dict):
            lines += ["", *table(f"{name}.{key(inner)}" if name else key(inner), it)]
    return lines


parser = argparse.ArgumentParser()
if sys.argv[0].endswith("remarshal"):
    parser.add_argument("-i", dest="input", required=True)
    parser.add_argument("-if", choices=["json"], required=True)
    parser.add_argument("-of", choices=["toml"], required=True)
    parser.add_argument("-o", dest="output", required=True)
else:
    parser.add_argument("input")
    parser.add_argument("output")
arguments = parser.parse_args()
with open(arguments.input) as source, open(arguments.output, "w") as target:
    target.write("\n".join(table("", json.load(source))) + "\n")
