#!/usr/bin/env python3
"""rendered.py write|check|texts DIRECTORY, or rendered.py scripts: compares the result of evaluating tests/render.nix,
from stdin, with the stored one.

A host whose assertions fail, that warns, or whose scripts bash can't parse is refused either way. For another NixOS
release than the stored one, `check` compares the files in which every word is ours. `texts` reads what `nix
show-derivation --recursive` says about a host, and adds the texts that its files call by their store names, as
`store.json`. `scripts` reads scripts by name, and refuses those that bash can't parse.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys


# Files that are the same in every NixOS release; `boot-loader` is not, since NixOS counts boots itself from 26.11 on.
OURS = re.compile(
    "settings/|scripts/linerate-|nftables/linerate$|profile[.]json$|litestream[.]yml$"
    "|dashboards/|(bird|keepalived)[.]conf$|(fleet|prometheus|rules)[.]json$|generation$"
)


def skip(name, reason):
    said = f"skipped: {name}: {reason}"
    print(said)
    if path := os.environ.get("LINERATE_SKIPS"):
        with open(path, "a") as skips:
            print(said, file=skips)


def complaints(host, config):
    for message in config["assertions"]:
        yield f"{host}: assertion failed: {message}"
    for message in config["warnings"]:
        yield f"{host}: warning: {message}"
    scripts = {"the script that builds it": config["build"]}
    scripts |= {name: text for name, text in config["files"].items() if name.startswith("scripts/")}
    for complaint in unreadable(scripts):
        yield f"{host}: {complaint}"


def unreadable(scripts):
    for name, script in scripts.items():
        parsed = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        # If bash can't parse a condition, it only prints a message, and exits with 0.
        if parsed.returncode or parsed.stderr:
            yield f"{name} is no script: {parsed.stderr.strip()}"


# JSON is split into lines, since a review goes line by line.
def readable(name, text):
    if name.endswith(".json"):
        text = json.dumps(json.loads(text), indent=2)
    return text.rstrip("\n") + "\n"


def kept(directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in files}


def write(directory, files):
    shutil.rmtree(directory, ignore_errors=True)
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# The same as in tests/render.nix.
def without_hashes_and_versions(text):
    text = re.sub("/nix/store/[0-9a-z]{32}-", "/nix/store/", text)
    name = "[0-9A-Za-z+._?=]+(?:-[A-Za-z+._?=][0-9A-Za-z+._?=]*)*"
    return re.sub(f"/nix/store/({name})-[0-9][0-9A-Za-z+._?=-]*", r"/nix/store/\1", text)


def write_texts(directory, derivations):
    known = {}
    for derivation in derivations.values():
        # For structured attributes in newer releases.
        env = derivation["env"] | derivation.get("structuredAttrs", {})
        if "text" in env:
            # Where in its output the text goes: pkgs.writeTextFile has it in the command it runs.
            place = re.search("target=[$]out'?([^'\n]*)", env.get("buildCommand", ""))
            place = place[1] if place else env.get("destination", "")
            name = without_hashes_and_versions(f"/nix/store/{env['name']}") + place
            known[name] = without_hashes_and_versions(env["text"])
    called, unread = {}, list(kept(directory).values())
    while unread:
        for name in set(re.findall(r"/nix/store/[^\s\"']+", unread.pop())) & known.keys() - called.keys():
            called[name] = known[name]
            unread.append(known[name])
    (directory / "store.json").write_text(json.dumps(called))


def main():
    mode = sys.argv[1]
    if mode == "scripts":
        return end_with(list(unreadable(json.load(sys.stdin))))
    root = pathlib.Path(sys.argv[2])
    if mode == "texts":
        return write_texts(root, json.load(sys.stdin))
    bad = []
    for host, config in json.load(sys.stdin).items():
        bad += complaints(host, config)
        files = {name: readable(name, text) for name, text in config["files"].items()}
        files["release"] = config["release"] + "\n"
        if mode == "write":
            write(root / host, files)
            continue
        old = kept(root / host)
        names = old.keys() | files.keys()
        if old.get("release", files["release"]) != files["release"]:
            others = {name for name in names if not OURS.match(name)}
            names -= others
            skip(
                f"{len(others)} rendered files of {host}",
                f"they are of NixOS {old['release'].strip()}, and this is {config['release']}, which words them otherwise",
            )
        changed = sorted(name for name in names if old.get(name) != files.get(name))
        bad += [f"{host}: {name} is not what it was: see to it, then 'make render'" for name in changed]
    end_with(bad)


def end_with(bad):
    for line in bad:
        print(f"error: {line}", file=sys.stderr)
    sys.exit(1 if bad else 0)


main()
