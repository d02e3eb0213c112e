"""A machine's TPM 2.0, by swtpm: one process per power-on, with state that persists between them."""

import shutil
import subprocess
import time
from pathlib import Path

from debian import Programs
from errors import Failure

_START_SECONDS = 30


class Tpm:
    def __init__(self, programs: Programs, directory: Path) -> None:
        self.programs = programs
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> list[str]:
        """Returns QEMU's arguments for it."""
        self.directory.mkdir(exist_ok=True)
        control = self.directory / "control"
        control.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            # It ends when the driver ends, like QEMU.
            ["setpriv", "--pdeathsig", "KILL", *self.programs.command("swtpm"), "socket", "--tpm2"]
            + ["--tpmstate", f"dir={self.directory}", "--ctrl", f"type=unixio,path={control}"]
            + ["--log", f"file={self.directory}/log,level=1"],
            stdin=subprocess.DEVNULL,
        )
        end = time.monotonic() + _START_SECONDS
        while not control.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure("the machine's TPM does not start")
            time.sleep(0.02)
        return [
            *["-chardev", f"socket,id=tpm,path={control}", "-tpmdev", "emulator,id=tpm,chardev=tpm"],
            *["-device", "tpm-crb,tpmdev=tpm"],
        ]

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def forget(self) -> None:
        shutil.rmtree(self.directory)
