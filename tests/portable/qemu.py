"""One QEMU process. It always emulates, since /dev/kvm may exist but hang."""

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from debian import Programs
from errors import Failure

# systemd and bash start much faster with these. Debian's kernel clears all memory that it allocates, which takes a
# fifth of a fork here. It also has SELinux and integrity measurement, which NixOS's kernel has not.
KERNEL_PARAMETERS = (
    "console=ttyS0 quiet mitigations=off nokaslr audit=0 apparmor=0 cryptomgr.notests random.trust_cpu=on"
    " no_timer_check rcupdate.rcu_expedited=1 systemd.show_status=0 init_on_alloc=0"
    " selinux=0 lsm=landlock,yama,bpf 8250.nr_uarts=1"
)
# Makes the kernel trust the time stamp counter when QEMU boots it.
AFTER_QEMU = "tsc=reliable"


def after_firmware() -> str:
    """Returns AFTER_QEMU and the counter's rate, for a kernel that firmware boots.

    Such a kernel otherwise measures a rate that is wrong by a multiple, and then all its timeouts are wrong too. The
    guest's counter is this machine's own.
    """
    cpu = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    megahertz = next(float(value) for name, value in cpu.items() if name.strip() == "cpu MHz")
    return f"{AFTER_QEMU} tsc_early_khz={megahertz * 1000:.0f}"


MACHINE = [
    # Without devices for which the guest's udev would load drivers: disks by SATA, SMBus, keyboard and mouse.
    *["-machine", "q35,sata=off,smbus=off,i8042=off,vmport=off"],
    # Without features that cost translation time and are not used here. Also without fast string instructions: with
    # them, kernel and C library copy and clear single bytes, which are emulated one by one. Copying words takes a third
    # of that time.
    *["-cpu", "max,-svm,-la57,-erms,-fsrm,-fzrm,-fsrs,-fsrc"],
    *["-nodefaults", "-no-user-config", "-no-reboot"],
]

# A thread of this machine for each of the guest's CPUs.
EMULATION = ["-accel", "tcg,thread=multi,tb-size=256"]
# The guest's clock counts instructions: one takes a nanosecond, and idle time none.
COUNTING = ["-accel", "tcg,thread=single,tb-size=256", "-icount", "shift=0,sleep=off"]


class Process:
    def __init__(self, programs: Programs, directory: Path, arguments: list[str]) -> None:
        self.directory = directory
        self.said = directory / "qemu.log"
        for name in ("console", "monitor", "shell"):
            (directory / name).unlink(missing_ok=True)
        command = [
            # The guest ends when the driver ends, however it ends.
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
        """Sends a command to QEMU's monitor (QMP)."""
        return self._execute(command, arguments)

    def _execute(self, name: str, arguments: dict[str, Any]) -> Any:
        self.monitor.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        while line := self.lines.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"QEMU: {answer['error']['desc']}")
            # Events may come before the answer.
            if "return" in answer:
                return answer["return"]
        raise Failure("QEMU went away")

    def kill(self) -> None:
        """Cuts the power: disk writes that QEMU holds in memory are lost too."""
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
