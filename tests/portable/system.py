"""What a machine boots: Debian with a rendered host in it, or NixOS itself."""

import base64
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from debian import Guest, Programs
from qemu import AFTER_QEMU, KERNEL_PARAMETERS, after_firmware

# Names in a machine's directory: its disk, and UEFI's variables.
DISK = "disk"
VARIABLES = "variables"
# How long what a guest does at boot may take.
BOOT_SECONDS = 600


class System(Protocol):
    @property
    def disk(self) -> Path:
        """What the machine's disk begins as."""

    @property
    def disk_format(self) -> str:
        """qemu-img's name of it."""

    @property
    def disk_mib(self) -> int | None:
        """Its size where that is another, in MiB."""

    @property
    def written(self) -> list[str]:
        """What a boot may change, by its name in the machine's directory."""

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        """QEMU's, for what boots it; `directory` is the machine's own."""


@dataclass(frozen=True)
class Debian:
    """By QEMU itself."""

    guest: Guest
    # The host, as an archive.
    payload: Path
    parameters: list[str]

    @property
    def disk(self) -> Path:
        return self.guest.disk

    @property
    def disk_format(self) -> str:
        return "raw"

    @property
    def disk_mib(self) -> int | None:
        return None

    @property
    def written(self) -> list[str]:
        return [DISK]

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        return [
            *["-drive", f"file={self.payload},if=none,id=payload,format=raw,readonly=on"],
            *["-device", "virtio-blk-pci,drive=payload,serial=payload"],
            *["-kernel", str(self.guest.kernel), "-initrd", str(self.guest.initrd)],
            *["-append", " ".join([KERNEL_PARAMETERS, AFTER_QEMU, *self.parameters])],
        ]


@dataclass(frozen=True)
class NixOS:
    """By UEFI, from its own disk and by its own boot loader."""

    disk: Path
    disk_format: str
    # The image is written to a disk that is larger.
    disk_mib: int | None
    # What it may be updated to, on a disk of its own.
    updates: Path | None = None
    # By a firmware that starts nothing but what is signed, once somebody has put keys there.
    secure_boot: bool = False

    @property
    def written(self) -> list[str]:
        return [DISK, VARIABLES]

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        variables = directory / VARIABLES
        # What boots change of them stays.
        if not variables.exists():
            shutil.copyfile(programs.ovmf / "OVMF_VARS_4M.fd", variables)
        # systemd-boot adds these to an entry's, and its stub to a boot file's (smbios-type-11(7)).
        extra = f"kernel-cmdline-extra={KERNEL_PARAMETERS} {after_firmware()}"
        # NixOS gives it 90 s, and bash and jq in the place of userborn take longer on busy CPUs. A drop-in that systemd
        # takes from the machine (systemd.system-credentials(7)).
        patience = base64.b64encode(f"[Service]\nTimeoutSec={BOOT_SECONDS}\n".encode()).decode()
        dropin = f"io.systemd.credential.binary:systemd.unit-dropin.userborn.service={patience}"
        updates = []
        if self.updates:
            updates += ["-drive", f"file={self.updates},if=none,id=updates,format=raw,readonly=on"]
            updates += ["-device", "virtio-blk-pci,drive=updates,serial=updates"]
        code = "OVMF_CODE_4M.fd"
        if self.secure_boot:
            # Its variables are written in system management mode alone.
            code = "OVMF_CODE_4M.secboot.fd"
            updates += ["-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"]
        return [
            *updates,
            *["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={programs.ovmf}/{code}"],
            *["-drive", f"if=pflash,unit=1,format=raw,file={variables}"],
            *["-smbios", f"type=11,value=io.systemd.boot.{extra},value=io.systemd.stub.{extra},value={dropin}"],
        ]
