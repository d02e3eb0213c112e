"""A guest's root shell over a virtio port: one line in, one line out."""

import base64
import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path

from errors import Failure, Hang

READY = b"shell is ready\n"
# Additional seconds that the channel may take, since every instruction is emulated.
GRACE_SECONDS = 30


class Shell:
    def __init__(self, path: Path, alive: Callable[[], bool]) -> None:
        self.alive = alive
        self.buffer = b""
        self.ready = False
        # Standard error of the last command that failed.
        self.errors = ""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(1)

    def close(self) -> None:
        self.socket.close()

    def wait(self, timeout: float) -> None:
        """Waits until the guest has started its shell."""
        if not self.ready:
            self._until(READY, timeout)
            self.ready = True

    def run(self, command: str, timeout: float) -> tuple[int, str]:
        """Runs a command. Returns its exit code and standard output; the code is 124 after a timeout, in seconds."""
        script = shlex.quote(f"set -euo pipefail; {command}")
        self.send(
            f"timeout {timeout:.0f} bash -c {script} </dev/null 2>/run/test-shell | base64 -w 0; s=${{PIPESTATUS[0]}};"
            ' [[ $s == 0 ]] || e=$(tail -c 4000 /run/test-shell | base64 -w 0); echo " ${e-} $s"; e=\n'
        )
        answer = self._until(b"\n", timeout + GRACE_SECONDS)
        output, errors, status = answer.split(b" ")
        self.errors = base64.b64decode(errors).decode(errors="replace")
        return int(status), base64.b64decode(output).decode(errors="replace")

    def send(self, line: str) -> None:
        self.socket.sendall(line.encode())

    def _until(self, token: bytes, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while token not in self.buffer:
            if time.monotonic() > end:
                raise Hang(f"the shell does not answer within {timeout:.0f} s")
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                if self.alive():
                    continue
                data = b""
            if not data:
                raise Failure("the machine went away")
            self.buffer += data
        before, _, self.buffer = self.buffer.partition(token)
        return before
