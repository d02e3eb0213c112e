"""Our programs as cargo builds them for the workspace's tests, which `make test` runs first; and programs of others."""

import json
import os
import subprocess
from pathlib import Path

import cache

PACKAGES = Path(__file__).resolve().parents[2] / "pkgs"
# Timeout of a cold build of our programs on two cores.
_BUILD_SECONDS = 1500


def _binaries() -> set[str]:
    """Returns the binaries that a host may run."""
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
    """Builds the wanted programs that are ours, and strips them of debug information. Returns their paths by name."""
    ours = wanted & _binaries()
    if not ours:
        return {}
    if "LINERATE_RELEASE" in os.environ:
        # For measurements. A package has the name of its binary.
        command = ["build", "--release", *(f"--package={name}" for name in sorted(ours))]
    else:
        # Building them alone would give their dependencies other features than the tests do, and build them again.
        command = ["test", "--workspace", "--no-run"]
    built = subprocess.run(
        ["cargo", *command, "--locked", "--message-format=json-render-diagnostics"],
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
        # A binary's test executable has the same name.
        if name in ours and message.get("executable") and not message["profile"]["test"]:
            stripped[name] = directory / name
            subprocess.run(["strip", "-o", stripped[name], message["executable"]], check=True)
    return stripped


# Programs that Debian lacks, from Go's module proxy: package, module and version. The version pins all dependencies.
_GO = {
    "litestream": ("github.com/benbjohnson/litestream/cmd/litestream", "github.com/benbjohnson/litestream v0.5.18"),
    # Debian's minica is a different program.
    "minica": ("github.com/jsha/minica", "github.com/jsha/minica v1.1.0"),
}


def others(wanted: set[str]) -> dict[str, Path]:
    """Builds the wanted programs that neither we nor Debian have. Returns their paths by name."""
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
