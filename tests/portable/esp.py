"""A disk with an EFI system partition: systemd-boot and the host's first generation, with the entry NixOS writes.

A further generation is what `nixos-rebuild boot` makes: an entry, and modules/appliance/trial.sh that puts it on trial.
"""

import subprocess
from pathlib import Path

from debian import Guest

# Before and after the partition, as every tool leaves it.
_MARGIN_MIB = 1
_SIZE_MIB = 128

_LOADER = "timeout 0\ndefault nixos-generation-1.conf\n"
# The initrd takes the units of the generation that `init` is of.
_ENTRY = """\
title NixOS
sort-key nixos
version Generation 1
linux /nixos/kernel
initrd /nixos/initrd
options init=/generations/1/init {options}
"""

_INSTALL = """\
#!/bin/bash
# install-generation NUMBER good|broken|ill|hanging
set -euo pipefail
generation=/generations/$1
units=$generation/units
mkdir -p "$units"
if [[ $2 == broken ]]; then
    mkdir "$units/linerate-links.service.d"
    printf '[Service]\\nExecStart=\\nExecStart=/nix/store/linerate-links/bin/linerate-links serve --config /none\\n' \\
        >"$units/linerate-links.service.d/broken.conf"
fi
if [[ $2 == ill ]]; then
    printf '{"nic": {"lost": {"driver": "nowhere"}}}\\n' >"$generation/profile.json"
    mkdir "$units/linerate-health.service.d"
    printf '[Service]\\nBindReadOnlyPaths=%s:/etc/linerate/profile.json\\n' "$generation/profile.json" \\
        >"$units/linerate-health.service.d/ill.conf"
fi
if [[ $2 == broken || $2 == ill ]]; then
    # A patience of five seconds, since nothing mends it: tests/health.sh has what a minute is for.
    sed 's/ -ge 60 / -ge 5 /' /nix/store/unit-script-linerate-health-start/bin/linerate-health-start >"$generation/health"
    grep -q ' -ge 5 ' "$generation/health"
    chmod 755 "$generation/health"
    mkdir -p "$units/linerate-health.service.d"
    printf '[Service]\\nExecStart=\\nExecStart=%s\\n' "$generation/health" >"$units/linerate-health.service.d/health.conf"
fi
if [[ $2 == hanging ]]; then
    mkdir "$units/linerate-health.service.d"
    # systemd freezes where it crashes, so that nobody is left who does anything.
    printf '[Service]\\nExecStart=\\nExecStart=/bin/kill -SEGV 1\\nExecStart=/bin/sleep infinity\\n' \\
        >"$units/linerate-health.service.d/hanging.conf"
fi
# As NixOS writes them: an entry for each generation by its plain name.
for counted in /boot/loader/entries/nixos-generation-*+*.conf; do
    [[ ! -e $counted ]] || cp "$counted" "${counted%+*}.conf"
done
sed "s#/generations/1/#/generations/$1/#; s/^version .*/version Generation $1/" \\
    /boot/loader/entries/nixos-generation-1.conf >"/boot/loader/entries/nixos-generation-$1.conf"
sed -i "s/^default .*/default nixos-generation-$1.conf/" /boot/loader/loader.conf
COMMANDS
sync
"""


def install(commands: str) -> str:
    """What installs a generation, with the commands that the host runs once NixOS has written its entries."""
    return _INSTALL.replace("COMMANDS\n", commands)


def make(path: Path, guest: Guest, parameters: list[str]) -> None:
    partition = path.with_suffix(".partition")
    with open(partition, "wb") as file:
        file.truncate(_SIZE_MIB << 20)
    _run("mkfs.vfat", "-n", "ESP", partition)
    _run("mmd", "-i", partition, "::EFI", "::EFI/BOOT", "::loader", "::loader/entries", "::nixos")
    texts = {
        "loader/loader.conf": _LOADER,
        # What trial.sh writes after the first generation.
        "loader/linerate-seen": "init=/generations/1/init\n",
        "loader/entries/nixos-generation-1.conf": _ENTRY.format(options=" ".join(parameters)),
    }
    for name, text in texts.items():
        subprocess.run(["mcopy", "-i", partition, "-", f"::{name}"], input=text, text=True, check=True)
    for source, name in (
        (guest.tree / "usr/lib/systemd/boot/efi/systemd-bootx64.efi", "EFI/BOOT/BOOTX64.EFI"),
        (guest.kernel, "nixos/kernel"),
        (guest.initrd, "nixos/initrd"),
    ):
        _run("mcopy", "-i", partition, source, f"::{name}")

    with open(path, "wb") as file:
        file.truncate((_SIZE_MIB + 2 * _MARGIN_MIB) << 20)
    layout = f"label: gpt\nstart={_MARGIN_MIB}MiB, size={_SIZE_MIB}MiB, type=uefi, name=ESP\n"
    subprocess.run(["sfdisk", "--quiet", path], input=layout, text=True, check=True, capture_output=True)
    _run("dd", f"if={partition}", f"of={path}", "bs=1M", f"seek={_MARGIN_MIB}", "conv=notrunc,sparse", "status=none")
    partition.unlink()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)
