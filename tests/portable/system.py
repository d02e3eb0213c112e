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
# Timeout for units that run at a guest's boot, and for the disks that they wait for. systemd allows 90 s, which a guest
# with less than a CPU exceeds: services start twice then, or an EFI partition is not mounted, and the guest goes on
# without.
BOOT_SECONDS = 600
PATIENCE = f"systemd.default_timeout_start_sec={BOOT_SECONDS} systemd.default_device_timeout_sec={BOOT_SECONDS}"


class System(Protocol):
    @property
    def disk(self) -> Path:
        """The image that the machine's disk starts from."""

    @property
    def disk_format(self) -> str:
        """The image's format, as qemu-img calls it."""

    @property
    def disk_mib(self) -> int | None:
        """The disk's size in MiB, if it differs from the image's."""

    @property
    def written(self) -> list[str]:
        """Names of files in the machine's directory that a boot may change."""

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        """Returns QEMU's arguments that boot the machine; `directory` is the machine's own."""


@dataclass(frozen=True)
class Debian:
    """A system whose kernel QEMU itself boots."""

    guest: Guest
    # The host, as a tar archive.
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
            *["-append", " ".join([KERNEL_PARAMETERS, PATIENCE, AFTER_QEMU, *self.parameters])],
        ]


@dataclass(frozen=True)
class NixOS:
    """A system that UEFI boots from its own disk, through its own boot loader."""

    disk: Path
    disk_format: str
    # The image is written to a larger disk.
    disk_mib: int | None
    # A second disk with the versions that it may be updated to.
    updates: Path | None = None
    # Whether the firmware starts only signed files once keys are enrolled.
    secure_boot: bool = False

    @property
    def written(self) -> list[str]:
        return [DISK, VARIABLES]

    def arguments(self, directory: Path, programs: Programs) -> list[str]:
        variables = directory / VARIABLES
        # Changes that boots make to the variables persist.
        if not variables.exists():
            shutil.copyfile(programs.ovmf / "OVMF_VARS_4M.fd", variables)
        # systemd-boot appends these parameters to an entry's, and its stub to a boot file's (smbios-type-11(7)).
        # A comma would end QEMU's option.
        extra = f"kernel-cmdline-extra={KERNEL_PARAMETERS} {PATIENCE} {after_firmware()}".replace(",", ",,")
        # NixOS allows 90 s, but bash and jq, which replace userborn, take longer on busy CPUs. systemd reads this
        # drop-in from the machine (systemd.system-credentials(7)).
        patience = base64.b64encode(f"[Service]\nTimeoutSec={BOOT_SECONDS}\n".encode()).decode()
        dropin = f"io.systemd.credential.binary:systemd.unit-dropin.userborn.service={patience}"
        updates = []
        if self.updates:
            updates += ["-drive", f"file={self.updates},if=none,id=updates,format=raw,readonly=on"]
            updates += ["-device", "virtio-blk-pci,drive=updates,serial=updates"]
        code = "OVMF_CODE_4M.fd"
        if self.secure_boot:
            # Only system management mode may write the firmware's variables.
            code = "OVMF_CODE_4M.secboot.fd"
            updates += ["-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"]
        return [
            *updates,
            *["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={programs.ovmf}/{code}"],
            *["-drive", f"if=pflash,unit=1,format=raw,file={variables}"],
            *["-smbios", f"type=11,value=io.systemd.boot.{extra},value=io.systemd.stub.{extra},value={dropin}"],
        ]
