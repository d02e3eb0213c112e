"""A machine of a test. Its methods have the names of NixOS's test driver.

Timeouts allow for guests that are emulated on two busy cores.
"""

import re
import shlex
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from debian import Programs
from errors import Failure
from initrd import BEGINS
from network import Card, Switch
from qemu import COUNTING, EMULATION, Process
from report import say
from shell import Shell
from system import DISK, VARIABLES, System
from tpm import Tpm

BOOT_SECONDS = 300
# Seconds until a guest's own system starts. Firmware, Debian's kernel and our initrd run before it.
INITRD_SECONDS = 360
# How often a guest is started until that happens.
ATTEMPTS = 3
COMMAND_SECONDS = 300
WAIT_SECONDS = 900
# Pauses between questions to a guest: each takes a tenth of a second of its CPU time, which delays what is waited for.
POLL_SECONDS = 0.2
MOST_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Hardware:
    cards: tuple[Card, ...] = (Card(),)
    # Two emulated CPUs wait for one another, and two guests run at a time on two CPUs: more would cost time.
    cpus: int = 1
    memory_mib: int = 768
    # QEMU's name for the root's device: virtio-blk-pci or nvme.
    disk: str = "virtio-blk-pci"
    # Sizes of additional empty disks, in MiB.
    empty_disks_mib: tuple[int, ...] = ()
    # Whether there is a watchdog, which resets a machine that does not ping it.
    watchdog: bool = False
    # Whether the guest's clock counts instructions, for measurements.
    counts_instructions: bool = False
    # Whether there is a TPM 2.0, whose state lasts as long as the machine's disk.
    tpm: bool = False


def empty_disk(index: int) -> str:
    """The name of its file in the machine's directory."""
    return f"empty{index}"


class Machine:
    def __init__(
        self,
        name: str,
        number: int,
        directory: Path,
        hardware: Hardware,
        switch: Switch,
        programs: Programs,
        system: System,
    ) -> None:
        self.name = name
        self.number = number
        self.directory = directory
        self.hardware = hardware
        self.switch = switch
        self.programs = programs
        self.system = system
        self.process: Process | None = None
        self.shell: Shell | None = None
        self.tpm = Tpm(programs, directory / "tpm") if hardware.tpm else None
        # Whether the first card's cable is pulled.
        self.blocked = False
        # The console log's length at the last start.
        self.started_at = 0
        self.disk = directory / DISK
        directory.mkdir()
        self._make_disk()

    def _make_disk(self) -> None:
        programs, system = self.programs, self.system
        size = [f"{system.disk_mib}M"] if system.disk_mib else []
        if not system.disk.exists():
            # Another machine of the test makes this disk.
            size.append("-u")
        subprocess.run(
            [*programs.command("qemu-img"), "create", "-q", "-f", "qcow2"]
            + ["-F", system.disk_format, "-b", system.disk, self.disk, *size],
            check=True,
            env=programs.environment(),
        )

        for index, mib in enumerate(self.hardware.empty_disks_mib):
            subprocess.run(
                [*programs.command("qemu-img"), "create", "-q", "-f", "qcow2", self._empty_disk(index), f"{mib}M"],
                check=True,
                env=programs.environment(),
            )

    def _empty_disk(self, index: int) -> Path:
        return self.directory / empty_disk(index)

    # Power.

    def start(self) -> None:
        if self.process:
            return
        self.started_at = self.console.stat().st_size if self.console.exists() else 0
        arguments = self._arguments()
        if self.tpm:
            arguments += self.tpm.start()
        self._keep()
        self.process = Process(self.programs, self.directory, arguments)
        if self.blocked:
            self._cable(up=False)
        self.shell = Shell(self.directory / "shell", self.process.alive)

    def _wait_for_initrd(self) -> None:
        """Waits until the guest's own system starts.

        Very rarely an emulated disk hangs, or a CPU loses a timer interrupt, before any tested code has run. The
        machine is then started again from the same disks, and a line says so.
        """
        for _ in range(ATTEMPTS - 1):
            if self._begins():
                return
            say(f"{self.name} hangs or ends before its system begins, and is started anew")
            self.crash()
            for name in self.system.written:
                self._copy(self._kept / name, self.directory / name)
            self.start()
        if not self._begins():
            raise Failure(f"{self.name}: its system does not begin")

    @property
    def _kept(self) -> Path:
        return self.directory / "kept"

    def _keep(self) -> None:
        """Copies everything that a boot may change, including the boot loader's count of tries."""
        self._kept.mkdir(exist_ok=True)
        for name in self.system.written:
            self._copy(self.directory / name, self._kept / name)

    def _copy(self, source: Path, copy: Path) -> None:
        subprocess.run(["cp", "--sparse=always", source, copy], check=True)

    def _begins(self) -> bool:
        """Whether the guest's own system starts in time."""
        end = time.monotonic() + INITRD_SECONDS
        while BEGINS not in self._said_since_start():
            # In about one of a hundred boots, QEMU itself fails an assertion and ends.
            gone = self.process and not self.process.alive()
            if gone or time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True

    def _said_since_start(self) -> str:
        if not self.console.exists():
            return ""
        with self.console.open(errors="replace") as console:
            console.seek(self.started_at)
            return console.read()

    def _arguments(self) -> list[str]:
        log = f"logfile={self.console},logappend=on"
        arguments = [
            *["-name", self.name, "-smp", str(self.hardware.cpus), "-m", str(self.hardware.memory_mib)],
            # Writes that the guest has not flushed may be lost with QEMU, as in a real disk's cache.
            *["-drive", f"file={self.disk},if=none,id=root,format=qcow2,cache=writeback"],
            *["-device", f"{self.hardware.disk},drive=root,serial=root"],
            *["-chardev", f"socket,id=console,path={self.directory}/console,server=on,wait=off,{log}"],
            *["-serial", "chardev:console"],
            *self.system.arguments(self.directory, self.programs),
        ]
        for index in range(len(self.hardware.empty_disks_mib)):
            arguments += ["-drive", f"file={self._empty_disk(index)},if=none,id=empty{index},format=qcow2"]
            arguments += ["-device", f"virtio-blk-pci,drive=empty{index},serial=empty{index}"]
        arguments += COUNTING if self.hardware.counts_instructions else EMULATION
        if self.hardware.watchdog:
            # With -no-reboot, QEMU also ends at a reset.
            arguments += ["-device", "i6300esb", "-action", "watchdog=reset"]
        for index, card in enumerate(self.hardware.cards):
            mac = f"52:54:00:00:{self.number:02x}:{index + 1:02x}"
            arguments += self.switch.plug(card, self.number, index, mac)
        return arguments

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    def _shell(self) -> Shell:
        self.start()
        assert self.shell
        if not self.shell.ready:
            self._wait_for_initrd()
        self.shell.wait(BOOT_SECONDS)
        return self.shell

    def shutdown(self) -> None:
        if self.process:
            self._shell().send("systemctl poweroff\n")
            self.wait_for_shutdown()

    def wait_for_shutdown(self) -> None:
        """Waits until the machine turns off or reboots. In both cases, `start` boots it again."""
        if self.process:
            self._wait_for_initrd()
            # It may still be booting and checking that boot.
            self.process.wait(BOOT_SECONDS + 2 * WAIT_SECONDS)
            self._off()

    def wait_for_end(self) -> None:
        """Waits until the machine is off. Its system need not have started."""
        if self.process:
            self.process.wait(BOOT_SECONDS + WAIT_SECONDS)
            self._off()

    def crash(self) -> None:
        """Cuts the power."""
        if self.process:
            self.process.kill()
            self._off()

    def _off(self) -> None:
        if self.shell:
            self.shell.close()
        self.process = self.shell = None
        if self.tpm:
            self.tpm.stop()
        for index in range(len(self.hardware.cards)):
            self.switch.unplug(self.number, index)

    def block(self) -> None:
        """Pulls the first card's cable."""
        self.blocked = True
        self._cable(up=False)

    def unblock(self) -> None:
        self.blocked = False
        self._cable(up=True)

    def _cable(self, up: bool) -> None:
        # Also while the machine boots.
        self.start()
        assert self.process
        self.process.command("set_link", name="card0", up=up)

    def send_console(self, text: str) -> None:
        """Types this text at the console."""
        self.start()
        with socket.socket(socket.AF_UNIX) as console:
            console.settimeout(COMMAND_SECONDS)
            console.connect(str(self.directory / "console"))
            console.sendall(text.encode())
            # QEMU closes the connection once the guest has read everything. The guest's output is also in the log.
            console.shutdown(socket.SHUT_WR)
            while console.recv(4096):
                pass

    def wait_for_console_text(self, pattern: str, timeout: int = BOOT_SECONDS) -> None:
        """Waits until the console has shown this text since the last start."""
        self.start()
        self._poll(f"the console says {pattern}", timeout, lambda: re.search(pattern, self._said_since_start()) is not None)

    def forget_tpm(self) -> None:
        """Gives the machine another TPM from its next start on, as if its disk were moved to another machine."""
        assert self.tpm and not self.process
        self.tpm.forget()

    def forget_variables(self) -> None:
        """Resets the firmware's variables from the next start on, so that it demands no signatures."""
        assert not self.process
        (self.directory / VARIABLES).unlink()

    def disk_has(self, text: str) -> bool:
        """Whether these bytes are anywhere on its disk, where a thief of the disk would find them."""
        # qcow2 changes only the order of blocks, not their content.
        return subprocess.run(["grep", "--quiet", "--fixed-strings", text, self.disk], check=False).returncode == 0

    def last_words(self) -> list[str]:
        """Returns the end of the console's log, and the end of the journal if the guest still answers."""
        lines = []
        for path in (self.console, self.directory / "qemu.log"):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-15:]
        if self.process and self.process.alive() and self.shell and self.shell.ready:
            try:
                journal = self.execute("journalctl -b --no-pager -q -n 60 -o short-monotonic", 60)[1]
            except (Failure, OSError) as error:
                journal = f"(no journal: {error})"
            lines += journal.splitlines()
        return lines

    # Commands.

    def execute(self, command: str, timeout: int | None = COMMAND_SECONDS) -> tuple[int, str]:
        return self._shell().run(command, timeout or COMMAND_SECONDS)

    def succeed(self, *commands: str, timeout: int | None = None) -> str:
        output = ""
        for command in commands:
            status, said = self.execute(command, timeout)
            if status != 0:
                raise Failure(f"{self.name}: `{command}` ended with {status}\n{said}{self._shell().errors}")
            output += said
        return output

    def fail(self, *commands: str, timeout: int | None = None) -> str:
        output = ""
        for command in commands:
            status, said = self.execute(command, timeout)
            if status == 0:
                raise Failure(f"{self.name}: `{command}` did not fail\n{said}")
            output += said
        return output

    def systemctl(self, arguments: str) -> tuple[int, str]:
        return self.execute(f"systemctl {arguments}")

    def start_job(self, unit: str) -> tuple[int, str]:
        return self.systemctl(f"start {shlex.quote(unit)}")

    def stop_job(self, unit: str) -> tuple[int, str]:
        return self.systemctl(f"stop {shlex.quote(unit)}")

    def get_unit_info(self, unit: str) -> dict[str, str]:
        lines = self.succeed(f"systemctl --no-pager show {shlex.quote(unit)}").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    # Waiting.

    def sleep(self, seconds: int) -> None:
        time.sleep(seconds)

    def _poll(self, what: str, timeout: float, done: Callable[[], bool]) -> None:
        end = time.monotonic() + timeout
        pause = POLL_SECONDS
        while not done():
            if time.monotonic() > end:
                raise Failure(f"{self.name}: not within {timeout:.0f} s: {what}")
            time.sleep(pause)
            pause = min(2 * pause, MOST_POLL_SECONDS)

    def wait_until_succeeds(self, command: str, timeout: int = WAIT_SECONDS) -> str:
        output = ""

        def done() -> bool:
            nonlocal output
            status, output = self.execute(command, min(timeout, COMMAND_SECONDS))
            return status == 0

        self._poll(f"`{command}` succeeds", timeout, done)
        return output

    def wait_until_fails(self, command: str, timeout: int = WAIT_SECONDS) -> str:
        output = ""

        def done() -> bool:
            nonlocal output
            status, output = self.execute(command, min(timeout, COMMAND_SECONDS))
            return status != 0

        self._poll(f"`{command}` fails", timeout, done)
        return output

    def wait_for_unit(self, unit: str, timeout: int = WAIT_SECONDS) -> None:
        """Waits until the unit is active. Fails at once if it has failed, or if it is inactive without a job."""

        def active() -> bool:
            state = self.succeed(f"systemctl show --property ActiveState --value {shlex.quote(unit)}").strip()
            if state == "failed":
                # What it said comes first, since a report may be cut.
                said = self.execute(f"journalctl -b --no-pager -q -o cat -n 8 -u {shlex.quote(unit)}")[1]
                raise Failure(f"{self.name}: {unit} has failed: {said}\n{self.execute(f'systemctl status -l {unit}')[1]}")
            if state == "inactive" and not self.succeed("systemctl list-jobs --no-legend").strip():
                # The job may have ended between the two questions.
                if self.succeed(f"systemctl show -P ActiveState {shlex.quote(unit)}").strip() == "inactive":
                    raise Failure(f"{self.name}: {unit} is inactive, and nothing is being started")
            return state == "active"

        self._poll(f"{unit} is active", timeout, active)

    def wait_for_open_port(self, port: int, addr: str = "localhost", timeout: int = WAIT_SECONDS) -> None:
        self.wait_until_succeeds(f"nc -z {shlex.quote(addr)} {port}", timeout)

    def wait_for_closed_port(self, port: int, addr: str = "localhost", timeout: int = WAIT_SECONDS) -> None:
        self.wait_until_fails(f"nc -z {shlex.quote(addr)} {port}", timeout)

    def wait_for_file(self, filename: str, timeout: int = WAIT_SECONDS) -> None:
        self.wait_until_succeeds(f"test -e {shlex.quote(filename)}", timeout)
