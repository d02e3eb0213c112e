#!/usr/bin/env python3
"""Debian 13's packages, from which tests/nixos makes nixpkgs' packages, with pinned versions and hashes.

debian.py fetch: makes sure that everything in debian.txt is in the cache, and prints the list that is: debian.txt, or
one beside the cache with today's versions, if the mirror no longer has what is pinned. Prints the reason and exits
with 3 if neither is available.
debian.py pin: rewrites debian.txt with today's versions. A line with only a name asks for that package; the libraries
that others depend on are added and removed automatically.

They come from the mirror that this machine's own apt uses, through an apt with separate lists.
"""

import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The second is for what is newer than Debian 13.
SUITES = ["trixie", "forky"]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LIST = Path(__file__).resolve().with_name("debian.txt")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linerate" / "nixos"
KERNEL = "linux-image-"
# Opened by name, so that nothing depends on them: what systemd uses for TPMs.
OPENED = {"libtss2-esys-3.0.2-0t64", "libtss2-rc0t64"}
# Libraries that packages are linked against without declaring the dependency.
BESIDES = {"libext2fs2t64": {"libcom-err2"}}
# A list with the mirror's current versions, for when Debian has newer ones than the pinned list.
TODAYS = CACHE / "debian.txt"
HEADER = """\
# What tests/nixos takes from Debian: package, version, SHA-256 of its file, libraries it depends on. Written by debian.py pin.
"""


class Unavailable(Exception):
    """Why the packages aren't available."""


def is_library(name: str) -> bool:
    """Whether others link against the package. Modules of PAM and of the name service have similar names."""
    return re.match(r"(lib(?!pam-|nss-|python)|zlib1g|bind9-libs)(?!.*-(bin|dev)$)", name) is not None


class Gone(Unavailable):
    """The mirror has newer versions instead of the pinned ones."""


def read(path: Path) -> dict[str, list[str]]:
    """Returns the columns of each package's line, by its name."""
    rows = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {row[0]: row for row in rows}


def file_of(name: str, version: str) -> Path:
    return CACHE / "debs" / f"{name}_{version.replace(':', '-')}.deb"


def mirror() -> str:
    """Returns the mirror that this machine's apt uses for Debian."""
    said = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for line in said.splitlines():
        uri = line.split()[-1].rstrip("/")
        # Not the one for security updates, which doesn't have all packages.
        if uri.endswith("/debian"):
            return uri
    raise Unavailable("apt of this machine knows no mirror of Debian")


class Apt:
    """apt with its own directory, for Debian 13 on any machine."""

    def __init__(self) -> None:
        root = CACHE / "apt"
        for directory in ("state/lists/partial", "cache/archives/partial"):
            (root / directory).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        (root / "sources.list").write_text(
            "".join(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n" for suite in SUITES)
        )
        (root / "apt.conf").write_text(
            f'Dir::State "{root}/state"; Dir::State::status "{root}/status"; Dir::Cache "{root}/cache";\n'
            f'Dir::Etc::sourcelist "{root}/sources.list"; Dir::Etc::sourceparts "-"; Dir::Etc::preferencesparts "-";\n'
            'Acquire::Languages "none"; APT::Sandbox::User "root"; APT::Architecture "amd64"; Acquire::Retries "2";\n'
            f'APT::Default-Release "{SUITES[0]}"; Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n'
            # Without it, a mirror that doesn't answer only causes a warning.
            'APT::Update::Error-Mode "any";\n'
        )
        self.environment = os.environ | {"APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C"}
        if self.run("apt-get", "update", "-q").returncode != 0:
            raise Unavailable("Debian's mirror does not answer")

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )

    def download(self, wanted: dict[str, str]) -> None:
        """Downloads the files of these packages in these versions, or the available ones."""
        arguments = [f"{name}={version}" for name, version in wanted.items()]
        said = self.run("apt-get", "download", "--print-uris", *arguments)
        if said.returncode != 0:
            errors = [line for line in said.stderr.splitlines() if line.startswith("E: ")]
            first = errors[0] if errors else said.stderr
            raise Gone(f"the mirror has no more what is pinned: {len(errors)} packages: {first}")
        addresses = {}
        for line in said.stdout.splitlines():
            address, name, *_ = line.split()
            addresses[name.split("_")[0]] = address.strip("'")

        def one(name: str) -> None:
            path = file_of(name, wanted[name])
            path.parent.mkdir(parents=True, exist_ok=True)
            # The machine's own fetcher, with its proxies.
            part = path.with_suffix(".part")
            got = self.run("/usr/lib/apt/apt-helper", "download-file", addresses[name], str(part))
            if got.returncode != 0:
                raise Unavailable(f"{name} was not to be had: {got.stderr.strip()[-200:]}")
            part.rename(path)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, wanted))


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch() -> None:
    try:
        complete(LIST)
        print(LIST)
    except Gone as why:
        # Their hashes come from a list that Debian has signed, which apt checks.
        TODAYS.write_text(todays()[0])
        complete(TODAYS)
        print(f"debian: today's versions: {why}", file=sys.stderr)
        print(TODAYS)


def complete(path: Path) -> None:
    """Makes sure that everything on a list is in the cache."""
    rows = read(path)
    missing = {name: row[1] for name, row in rows.items() if not file_of(name, row[1]).exists()}
    if missing:
        Apt().download(missing)
    for name in missing:
        file = file_of(name, rows[name][1])
        if digest(file) != rows[name][2]:
            file.unlink()
            raise SystemExit(f"error: {name}: the mirror's file is not the one that {path.name} names")


def pin() -> None:
    text, mib = todays()
    LIST.write_text(text)
    print(f"{len(text.splitlines()) - 1} packages, {mib} MiB")


def todays() -> tuple[str, int]:
    """Returns the list with today's versions, and the size of its packages, in MiB."""
    apt = Apt()
    # A kernel's name contains its version.
    wanted = [name for name in read(LIST) if not is_library(name) and not name.startswith(KERNEL)] + sorted(OPENED)
    kernel = re.search(rf"Depends: ({KERNEL}\d\S*)", apt.run("apt-cache", "depends", f"{KERNEL}amd64").stdout)
    if kernel is None:
        raise Unavailable(f"{KERNEL}amd64 names no kernel")
    wanted.append(kernel[1])
    found: dict[str, dict[str, str]] = {}
    needs: dict[str, list[str]] = {}
    while wanted:
        said = apt.run("apt-cache", "show", "--no-all-versions", *wanted)
        if said.returncode != 0:
            raise Unavailable(said.stderr.strip().splitlines()[-1])
        for stanza in said.stdout.strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
            found[fields["Package"]] = fields
            depends = [fields.get(key, "") for key in ("Pre-Depends", "Depends")]
            names = {re.split(r"[ :(|]", one.strip())[0] for one in ",".join(depends).split(",") if one.strip()}
            names |= BESIDES.get(fields["Package"], set())
            needs[fields["Package"]] = sorted(name for name in names if is_library(name))
        wanted = sorted({name for names in needs.values() for name in names} - found.keys())
    lines = [
        " ".join([name, fields["Version"], fields["SHA256"], ",".join(needs[name]) or "-"])
        for name, fields in sorted(found.items())
    ]
    return HEADER + "\n".join(lines) + "\n", sum(int(fields["Size"]) for fields in found.values()) >> 20


if __name__ == "__main__":
    try:
        {"fetch": fetch, "pin": pin}[sys.argv[1]]()
    except Unavailable as why:
        print(why)
        sys.exit(3)
