"""What a machine boots: Debian with a rendered host in it, or NixOS itself."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import esp
from debian import Guest, Programs
from qemu import AFTER_QEMU, KERNEL_PARAMETERS, after_firmware

# Names in a machine's directory: its disk, the EFI system partition that a Debian boots from, UEFI's variables.
DISK = "disk"
ESP = "esp"
VARIABLES = "variables"


class System(Protocol):
    @property
    def disk(self) -> Path:
        """What the machine's disk begins as."""

    @property
    def disk_mib(self) -> int | None:
        """Its size where that is another, in MiB."""

    @property
    def written(self) -> list[str]:
        """What a boot may change, by its name in the machine's directory."""

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        """QEMU's, for what boots it; `directory` is the machine's own."""


def _variables(directory: Path, programs: Programs) -> list[str]:
    """QEMU's arguments for UEFI. What boots change of its variables stays."""
    variables = directory / VARIABLES
    if not variables.exists():
        shutil.copyfile(programs.ovmf / "OVMF_VARS_4M.fd", variables)
    return [
        *["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={programs.ovmf}/OVMF_CODE_4M.fd"],
        *["-drive", f"if=pflash,unit=1,format=raw,file={variables}"],
    ]


@dataclass(frozen=True)
class Debian:
    """By QEMU, or by firmware from a disk of its own."""

    guest: Guest
    # The host, as an archive.
    payload: Path
    parameters: list[str]
    uefi: bool

    @property
    def disk(self) -> Path:
        return self.guest.disk

    @property
    def disk_mib(self) -> int | None:
        return None

    @property
    def written(self) -> list[str]:
        return [DISK, *([ESP, VARIABLES] if self.uefi else [])]

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        return [
            *["-drive", f"file={self.payload},if=none,id=payload,format=raw,readonly=on"],
            *["-device", "virtio-blk-pci,drive=payload,serial=payload"],
            *(self._firmware(directory, programs) if self.uefi else self._kernel()),
        ]

    def _kernel(self) -> list[str]:
        parameters = " ".join([KERNEL_PARAMETERS, AFTER_QEMU, *self.parameters])
        return ["-kernel", str(self.guest.kernel), "-initrd", str(self.guest.initrd), "-append", parameters]

    def _firmware(self, directory: Path, programs: Programs) -> list[str]:
        disk = directory / ESP
        if not disk.exists():
            esp.make(disk, self.guest, [KERNEL_PARAMETERS, after_firmware(), *self.parameters])
        return [
            *_variables(directory, programs),
            *["-drive", f"file={disk},if=none,id=esp,format=raw"],
            *["-device", "virtio-blk-pci,drive=esp,serial=esp,bootindex=0"],
        ]


@dataclass(frozen=True)
class NixOS:
    """From its own disk, by its own boot loader."""

    disk: Path
    # The image is written to a disk that is larger.
    disk_mib: int | None

    @property
    def written(self) -> list[str]:
        return [DISK, VARIABLES]

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        # systemd-boot adds these to an entry's (smbios-type-11(7)).
        extra = f"io.systemd.boot.kernel-cmdline-extra={KERNEL_PARAMETERS} {after_firmware()}"
        return [*_variables(directory, programs), "-smbios", f"type=11,value={extra}"]
