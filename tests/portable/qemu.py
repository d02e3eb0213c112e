"""One QEMU process. Always emulation: /dev/kvm may be there and hang."""

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from debian import Programs
from errors import Failure

# systemd and bash start a good deal faster without what these look for. Debian's kernel clears all memory that it gives
# out, which is a fifth of a fork here.
KERNEL_PARAMETERS = (
    "console=ttyS0 quiet mitigations=off nokaslr audit=0 apparmor=0 cryptomgr.notests random.trust_cpu=on"
    " no_timer_check rcupdate.rcu_expedited=1 systemd.show_status=0 init_on_alloc=0"
)
# What the kernel trusts the time stamp counter for, when QEMU boots it.
AFTER_QEMU = "tsc=reliable"


def after_firmware() -> str:
    """The same when firmware does: it then reckons the counter's rate wrong by a multiple, and every timeout with it.

    The guest's counter is this machine's own.
    """
    cpu = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    megahertz = next(float(value) for name, value in cpu.items() if name.strip() == "cpu MHz")
    return f"{AFTER_QEMU} tsc_early_khz={megahertz * 1000:.0f}"


MACHINE = [
    *["-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256"],
    # Without what costs translation time and nobody here uses; and without fast string instructions, for which kernel
    # and C library copy and clear by single bytes, which are emulated one by one: by words it takes a third of that.
    *["-cpu", "max,-svm,-la57,-erms,-fsrm,-fzrm,-fsrs,-fsrc"],
    *["-nodefaults", "-no-user-config", "-no-reboot"],
]


class Process:
    def __init__(self, programs: Programs, directory: Path, arguments: list[str]) -> None:
        self.directory = directory
        self.said = directory / "qemu.log"
        for name in ("console", "monitor", "shell"):
            (directory / name).unlink(missing_ok=True)
        command = [
            # The guest ends with the driver, however that ends.
            *["setpriv", "--pdeathsig", "KILL"],
            *programs.command("qemu-system-x86_64"),
            *programs.firmware(),
            *MACHINE,
            *["-display", "none"],
            *["-qmp", f"unix:{directory}/monitor,server=on,wait=off"],
            *["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=shell,name=shell"],
            *["-chardev", f"socket,id=shell,path={directory}/shell,server=on,wait=off"],
            *["-device", "virtio-rng-pci"],
            *arguments,
        ]
        with open(self.said, "w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=programs.environment(),
            )
        self.monitor = self._connect()
        self._execute("qmp_capabilities", {})

    def _connect(self) -> socket.socket:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            monitor = socket.socket(socket.AF_UNIX)
            try:
                monitor.connect(str(self.directory / "monitor"))
            except OSError:
                monitor.close()
                if not self.alive():
                    break
                time.sleep(0.02)
                continue
            monitor.settimeout(30)
            self.lines = monitor.makefile("r")
            self.lines.readline()
            return monitor
        raise Failure(f"QEMU does not start: {self.said.read_text()}")

    def alive(self) -> bool:
        return self.process.poll() is None

    def command(self, command: str, /, **arguments: Any) -> Any:
        """Asks QEMU's monitor (QMP)."""
        return self._execute(command, arguments)

    def _execute(self, name: str, arguments: dict[str, Any]) -> Any:
        self.monitor.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        while line := self.lines.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"QEMU: {answer['error']['desc']}")
            # Events come between.
            if "return" in answer:
                return answer["return"]
        raise Failure("QEMU went away")

    def kill(self) -> None:
        """A power cut: what QEMU holds of the disk in memory is gone as well."""
        self.process.kill()
        self.process.wait()
        self._close()

    def wait(self, timeout: float) -> None:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"the machine is still there after {timeout:.0f} s") from None
        self._close()

    def _close(self) -> None:
        self.lines.close()
        self.monitor.close()
