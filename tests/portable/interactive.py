"""Boots a rendered host to look around in: its console in this terminal, its services on ports of this machine."""

import subprocess
import tempfile
from pathlib import Path

from host import Host
from qemu import AFTER_QEMU, EMULATION, KERNEL_PARAMETERS, MACHINE
from scenario import Made

# This machine's port, and the host's.
FORWARDED = {8080: 80, 8090: 8090, 8100: 8100, 8443: 8443, 8444: 8444}

_GETTY = "/usr/lib/systemd/system/serial-getty@.service"
_LOGIN = """\
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear --keep-baud 115200 - $TERM
"""


def boot(host: Host, made: Made) -> int:
    programs, guest, ours, _, _ = made
    files = host.install(ours, guest.tree)
    files.link("/etc/systemd/system/serial-getty@ttyS0.service", _GETTY)
    files.link("/etc/systemd/system/getty.target.wants/serial-getty@ttyS0.service", _GETTY)
    files.add("/etc/systemd/system/serial-getty@ttyS0.service.d/login.conf", _LOGIN)
    files.add("/etc/hostname", "linerate\n")
    files.add("/etc/systemd/network/50-card.network", "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n")
    forwarded = "".join(f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in FORWARDED.items())
    with tempfile.TemporaryDirectory(prefix="linerate-boot-") as directory:
        payload = Path(directory) / "payload.tar"
        files.write(payload)
        ports = ", ".join(
            f"http{'s' if there in (8443, 8444) else ''}://localhost:{here} (its port {there})" for here, there in FORWARDED.items()
        )
        print(f"{ports}; it ends with 'poweroff', or with Ctrl-A X. It takes half a minute to boot.", flush=True)
        return subprocess.run(
            [
                *programs.command("qemu-system-x86_64"),
                *programs.firmware(),
                *MACHINE,
                *EMULATION,
                *["-nographic", "-serial", "mon:stdio", "-smp", "2", "-m", "1024"],
                *["-kernel", str(guest.kernel), "-initrd", str(guest.initrd)],
                *["-append", " ".join([KERNEL_PARAMETERS, AFTER_QEMU, *host.kernel_parameters()])],
                *["-drive", f"file={guest.disk},if=none,id=root,format=raw,snapshot=on"],
                *["-device", "virtio-blk-pci,drive=root,serial=root"],
                *["-drive", f"file={payload},if=none,id=payload,format=raw,readonly=on"],
                *["-device", "virtio-blk-pci,drive=payload,serial=payload"],
                *["-netdev", f"user,id=net{forwarded}", "-device", "virtio-net-pci,netdev=net,romfile="],
                *["-device", "virtio-rng-pci"],
            ],
            env=programs.environment(),
            check=False,
        ).returncode
