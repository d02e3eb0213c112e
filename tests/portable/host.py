"""Turns a rendered host of tests/rendered into files that make Debian that host, where NixOS puts them."""

import io
import json
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from errors import Failure
from report import skip

RENDERED = Path(__file__).resolve().parents[1] / "rendered"
_APPLIANCE = RENDERED.parents[1] / "modules/appliance"

# Units that are not installed, and why.
LEFT_OUT = {
    "cpufreq.service": "a virtual machine has no governor",
}

# Cards that QEMU has. doctor would report any other card as missing, so the test's profile leaves it out.
_DRIVERS = {"igb", "virtio_net"}
# Kernel parameters for the real host's disk and console.
_OF_THE_MACHINE = re.compile(r"(root|console)=.*")
_STORE = re.compile(r"/nix/store/([^/\s\"']+)(?:/s?bin/([\w.-]+))?")
# The highest id of a NixOS system user; NixOS counts downwards from here.
_HIGHEST_SYSTEM_ID = 399


@dataclass
class Files:
    """The content of a payload: regular files with their mode, and symbolic links."""

    texts: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        self.texts[path] = (content.encode() if isinstance(content, str) else content, mode)

    def link(self, path: str, target: str) -> None:
        self.links[path] = target

    def write(self, path: Path) -> None:
        """Writes it as a tar archive, padded to a valid disk size."""
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, (content, mode) in sorted(self.texts.items()):
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = len(content), mode
                archive.addfile(entry, io.BytesIO(content))
            for name, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry)


class Host:
    def __init__(self, name: str, rendered: Path = RENDERED) -> None:
        self.name = name
        directory = rendered / name
        for unit, reason in LEFT_OUT.items():
            if (directory / "systemd/system" / unit).exists():
                skip(f"{unit} of {name}", reason)
        self.files = {
            str(path.relative_to(directory)): path.read_text()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.name not in LEFT_OUT
        }
        # Texts by their store names, for hosts whose own files do not suffice.
        self.store: dict[str, str] = json.loads(self.files.pop("store.json", "{}"))

    def _below(self, directory: str) -> dict[str, str]:
        prefix = f"{directory}/"
        return {path[len(prefix) :]: text for path, text in self.files.items() if path.startswith(prefix)}

    @property
    def units(self) -> dict[str, str]:
        return self._below("systemd/system")

    def programs(self) -> set[str]:
        """Returns the names of the programs that the host calls, and of those for its operators."""
        called = {program for text in self.files.values() for _, program in _STORE.findall(text) if program}
        # NixOS's scripts call these by name, without a store path.
        named = {word for text in self.store.values() for word in re.findall(r"[\w-]+", text)}
        return called | named | {"linerate", "linerate-links"}

    def kernel_parameters(self) -> list[str]:
        return [
            parameter
            for parameter in self.files.get("kernel-parameters", "").split("\n")
            if parameter and not _OF_THE_MACHINE.fullmatch(parameter)
        ]

    def install(self, ours: dict[str, Path], tree: Path) -> Files:
        """Returns the files that turn Debian's `tree` into this host, with these programs."""
        files = Files()
        self._units(files)
        self._kernel(files)
        files.add("/etc/linerate/profile.json", self._profile())
        self._network(files)
        self._users(files, tree)
        self._store(files, ours, tree)
        return files

    def _units(self, files: Files) -> None:
        system = "/etc/systemd/system"
        for name, text in self.units.items():
            files.add(f"{system}/{name}", text)
            for kind, suffix in (("WantedBy", "wants"), ("RequiredBy", "requires")):
                for target in _values(text, kind):
                    files.link(f"{system}/{target}.{suffix}/{name}", f"../{name}")
            # NixOS stores RequiredBy= as links beside the unit, not in its text.
            if "boot-complete.target" in _values(text, "Before"):
                files.link(f"{system}/boot-complete.target.requires/{name}", f"../{name}")
        files.add("/etc/systemd/journald.conf.d/host.conf", f"[Journal]\n{self.files.get('journald.conf', '')}")
        files.add("/etc/tmpfiles.d/host.conf", self.files.get("tmpfiles", ""))
        if "litestream.yml" in self.files:
            files.add("/etc/linerate/litestream.yml", self.files["litestream.yml"])
        files.add("/etc/systemd/system.conf.d/host.conf", f"[Manager]\n{self.files.get('system.conf', '')}")
        for line in self.files.get("etc-links", "").splitlines():
            path, target = line.split(" ")
            files.link(path, target)

    def _kernel(self, files: Files) -> None:
        files.add("/etc/sysctl.d/60-nixos.conf", self.files["sysctl.conf"])
        files.add("/etc/modprobe.d/nixos.conf", self.files.get("modprobe.conf", ""))
        files.add("/etc/modules-load.d/nixos.conf", self.files.get("modules-load", ""))
        files.add("/etc/udev/rules.d/99-local.rules", self.files.get("udev.rules", ""))

    def _profile(self) -> str:
        profile = json.loads(self.files["profile.json"])
        for name, card in profile["nic"].items():
            if card["driver"] not in _DRIVERS:
                skip(f"{profile['host']}'s card {name}", f"QEMU has none of {card['driver']}")
        profile["nic"] = {name: card for name, card in profile["nic"].items() if card["driver"] in _DRIVERS}
        return json.dumps(profile)

    def _network(self, files: Files) -> None:
        for name, text in self._below("systemd/network").items():
            files.add(f"/etc/systemd/network/{name}", text)
        tables = "".join(f"table inet {name} {{\n{text}}}\n" for name, text in self._below("nftables").items())
        files.add("/etc/nftables.conf", f"#!/usr/sbin/nft -f\nflush ruleset\n{tables}")
        files.link("/etc/systemd/system/sysinit.target.wants/nftables.service", "/usr/lib/systemd/system/nftables.service")
        settings: dict[str, Any] = json.loads(self.files["sshd"])
        self._host_keys(files)
        files.add("/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\n" + "".join(_ssh(name, value) for name, value in settings.items()))

    def _users(self, files: Files, tree: Path) -> None:
        texts = {name: (tree / "etc" / name).read_text() for name in ("passwd", "group", "shadow")}
        known = {name: {line.split(":")[0] for line in text.splitlines()} for name, text in texts.items()}
        ids = iter(range(_HIGHEST_SYSTEM_ID, 100, -1))
        group_ids: dict[str, int] = {}

        users = [line.split(" ") for line in self.files["users"].splitlines()]
        groups = [dict(_pair(word) for word in words)["group"] for words in users]
        for text in self.units.values():
            groups += _values(text, "Group") + _values(text, "SupplementaryGroups")
        for group in groups:
            if group not in known["group"] and group not in group_ids:
                group_ids[group] = next(ids)
                texts["group"] += f"{group}:x:{group_ids[group]}:\n"
        for name, *words in users:
            if name not in known["passwd"]:
                user = dict(_pair(word) for word in words)
                gid = group_ids.get(user["group"], 65534)
                texts["passwd"] += f"{name}:x:{next(ids)}:{gid}::{user['home']}:/usr/sbin/nologin\n"
                texts["shadow"] += f"{name}:!:1::::::\n"
        for name, text in texts.items():
            files.add(f"/etc/{name}", text, 0o640 if name == "shadow" else 0o644)

    def _host_keys(self, files: Files) -> None:
        """Adds ssh host keys. NixOS creates missing ones before ssh starts."""
        keys = [line.split(" ")[1] for line in self.files["host-keys"].splitlines()]
        files.add("/etc/ssh/sshd_config.d/host.conf", "".join(f"HostKey {key}\n" for key in keys))
        made = "".join(
            f"ExecStartPre=/bin/sh -c '[ -s {key} ] || ssh-keygen -q -t ed25519 -N \"\" -f {key}'\n" for key in keys
        )
        files.add(
            "/etc/systemd/system/ssh.service.d/host.conf",
            f"[Service]\nExecStartPre=\n{made}ExecStartPre=/usr/sbin/sshd -t\n",
        )

    def _store(self, files: Files, ours: dict[str, Path], tree: Path) -> None:
        """Adds what the texts call by store paths: our programs, their settings, or Debian's own programs."""
        for name, program in ours.items():
            files.add(f"/nix/store/{name}/bin/{name}", program.read_bytes(), 0o755)
            files.link(f"/usr/local/bin/{name}", f"/nix/store/{name}/bin/{name}")
        for name, text in self.store.items():
            files.add(name, text, 0o755)
        there = {name.split("/")[3] for name in self.store}
        missing: set[str] = set()
        for text in [*self.files.values(), *self.store.values()]:
            for package, program in _STORE.findall(text):
                if package in there:
                    continue
                if program in ours:
                    files.add(f"/nix/store/{package}/bin/{program}", ours[program].read_bytes(), 0o755)
                elif package.startswith("unit-script-"):
                    script = self.files[f"scripts/{program.removesuffix('-start')}"]
                    files.add(f"/nix/store/{package}/bin/{program}", f"#!/bin/bash -e\n{script}", 0o755)
                elif package in {"linerate-keep", "linerate-trial"}:
                    script = (_APPLIANCE / f"{package.removeprefix('linerate-')}.sh").read_text()
                    files.add(f"/nix/store/{package}/bin/{program}", f"#!/bin/bash\n{script}", 0o755)
                elif settings := re.fullmatch(r"linerate-(\w+)\.toml", package):
                    values = json.loads(self.files[f"settings/{settings[1]}"])
                    files.add(f"/nix/store/{package}", _toml(values))
                elif program and package not in there and not _has(tree, program):
                    missing.add(f"{package}/bin/{program}")
                else:
                    files.link(f"/nix/store/{package}", "/usr")
        if missing:
            raise Failure(f"Debian has none of what {self.name} calls: {', '.join(sorted(missing))}")


def _has(tree: Path, program: str) -> bool:
    return any((tree / "usr" / directory / program).is_symlink() or (tree / "usr" / directory / program).exists() for directory in ("bin", "sbin"))


def _values(unit: str, name: str) -> list[str]:
    return [value for line in unit.splitlines() if line.startswith(f"{name}=") for value in line[len(name) + 1 :].split()]


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _ssh(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, list):
        value = ",".join(value)
    return f"{name} {value}\n"


def _toml(settings: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(name)} = {_toml_value(value)}\n" for name, value in settings.items())


def _toml_value(value: Any) -> str:
    """Returns the value as TOML on one line. Its strings, numbers and booleans are written as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(each) for each in value) + "]"
    return json.dumps(value)
