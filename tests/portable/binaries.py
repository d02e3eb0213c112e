"""Our programs, as cargo builds them for the tests of the workspace, which `make test` runs before, and others."""

import json
import os
import subprocess
from pathlib import Path

import cache

PACKAGES = Path(__file__).resolve().parents[2] / "pkgs"
# Rust from nothing on two cores.
_BUILD_SECONDS = 1500


def _binaries() -> set[str]:
    """The binaries that a host may run."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--locked", "--format-version=1"],
        cwd=PACKAGES,
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        target["name"]
        for package in json.loads(metadata.stdout)["packages"]
        for target in package["targets"]
        if "bin" in target["kind"]
    }


def build(directory: Path, wanted: set[str]) -> dict[str, Path]:
    """Those of the wanted programs that are ours, built and without debug information, by name."""
    ours = wanted & _binaries()
    if not ours:
        return {}
    # Built by themselves, their dependencies would have other features than in the tests, and be built again.
    built = subprocess.run(
        ["cargo", "test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"],
        cwd=PACKAGES,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_BUILD_SECONDS,
    )
    stripped = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        name = message.get("target", {}).get("name")
        # The tests of a binary have its name too.
        if name in ours and message.get("executable") and not message["profile"]["test"]:
            stripped[name] = directory / name
            subprocess.run(["strip", "-o", stripped[name], message["executable"]], check=True)
    return stripped


# Programs that Debian does not have, from Go's module proxy: package, module and version, which pins all that it is
# built of.
_GO = {
    "litestream": ("github.com/benbjohnson/litestream/cmd/litestream", "github.com/benbjohnson/litestream v0.5.18"),
    # Debian's minica is another one.
    "minica": ("github.com/jsha/minica", "github.com/jsha/minica v1.1.0"),
}


def others(wanted: set[str]) -> dict[str, Path]:
    """Those of the wanted programs that neither we nor Debian have, by name."""
    return {name: _built(name, *_GO[name]) for name in sorted(wanted & _GO.keys())}


def _built(name: str, package: str, module: str) -> Path:
    def make(directory: Path) -> None:
        (directory / "go.mod").write_text(f"module others\n\nrequire {module}\n")
        subprocess.run(
            ["go", "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", name, package],
            cwd=directory,
            env=os.environ | {"CGO_ENABLED": "0"},
            check=True,
            timeout=_BUILD_SECONDS,
        )

    return cache.kept(name, cache.digest(package, module), make) / name
