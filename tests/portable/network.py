"""The network of a test's machines: the first cards share one switch, the second cards another, and so on."""

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from errors import Failure
from report import skip

# linux/sched.h
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Card:
    """A network card."""

    # QEMU's name: virtio-net-pci or igb.
    model: str = "virtio-net-pci"
    # Queues of virtio_net, which the host provides. igb has its own number.
    queues: int = 1

    def device(self, number: int, mac: str, queues: int) -> list[str]:
        """Returns QEMU's arguments for the card itself, connected to the backend of this number."""
        device = f"{self.model},id=card{number},netdev=net{number},mac={mac},romfile="
        if queues > 1:
            # One vector per direction of each queue, one for the configuration, one for the control queue.
            device += f",mq=on,vectors={2 * queues + 2}"
        if self.model == "igb":
            # A PCI Express device needs a port.
            return ["-device", f"pcie-root-port,id=port{number},slot={number + 1}", "-device", f"{device},bus=port{number}"]
        return ["-device", device]


class Switch(Protocol):
    def plug(self, card: Card, machine: int, number: int, mac: str) -> list[str]:
        """Returns QEMU's arguments for this card of this machine."""

    def unplug(self, machine: int, number: int) -> None: ...


class Bridges:
    """Taps on Linux bridges, in a namespace that ends with this process. Only taps give virtio several queues."""

    def __init__(self) -> None:
        """Moves this process and its children to a new network namespace."""
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace may be made")
        if not os.path.exists("/dev/net/tun"):
            raise OSError("/dev/net/tun is missing")
        self.bridges: set[int] = set()
        self._bridge(0)

    def _bridge(self, number: int) -> str:
        name = f"switch{number}"
        if number not in self.bridges:
            _ip(f"link add {name} type bridge")
            _ip(f"link set {name} up")
            self.bridges.add(number)
        return name

    def plug(self, card: Card, machine: int, number: int, mac: str) -> list[str]:
        tap = f"tap{machine}-{number}"
        queues = card.queues if card.model.startswith("virtio") else 1
        _ip(f"tuntap add dev {tap} mode tap vnet_hdr {'multi_queue' if queues > 1 else ''}")
        _ip(f"link set {tap} master {self._bridge(number)} up")
        backend = f"tap,id=net{number},ifname={tap},script=no,downscript=no,vhost=off"
        if queues > 1:
            backend += f",queues={queues}"
        return ["-netdev", backend, *card.device(number, mac, queues)]

    def unplug(self, machine: int, number: int) -> None:
        subprocess.run(["ip", "link", "delete", f"tap{machine}-{number}"], check=False, capture_output=True)


class Cables:
    """Sockets between the first and second machine, where taps are forbidden. Cards have one queue, except igb."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def plug(self, card: Card, machine: int, number: int, mac: str) -> list[str]:
        if machine > 2:
            raise Failure("a third machine needs taps, and none may be made here")
        here, there = (self.directory / f"cable{number}-{end}" for end in (machine, 3 - machine))
        here.unlink(missing_ok=True)
        backend = f"dgram,id=net{number},local.type=unix,local.path={here},remote.type=unix,remote.path={there}"
        return ["-netdev", backend, *card.device(number, mac, 1)]

    def unplug(self, machine: int, number: int) -> None:
        pass


def switch(directory: Path) -> Switch:
    try:
        return Bridges()
    except OSError as error:
        reason = error.strerror or str(error)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip()
    skip("queues of virtio", reason)
    return Cables(directory)


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True)
