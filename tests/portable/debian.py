"""Debian 13: the guests' root file system with its kernel, and the QEMU that boots it.

QEMU comes from the same release, whatever this machine has: igb is younger than Debian 12's.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cache
import initrd

SUITE = "trixie"

# Packages that the units, the command line and the scripts call. Each costs time in a cold run.
GUEST = [
    "busybox-static",
    "conntrack",
    "curl",
    "dbus",
    "dosfstools",
    "e2fsprogs",
    "ethtool",
    "fdisk",
    "haproxy",
    "iproute2",
    "iputils-ping",
    "irqbalance",
    "kmod",
    "lego",
    "libicu76",
    "libldap2",
    "libnss-systemd",
    "libpq5",
    "libreadline8t64",
    "libxml2",
    "mount",
    "netbase",
    "netcat-openbsd",
    "nftables",
    "openssh-client",
    "openssh-server",
    "openssl",
    "pebble",
    "procps",
    "python3-aioquic",
    "systemd",
    "systemd-sysv",
    "tzdata",
    "udev",
]
# PostgreSQL is unpacked, not installed: installing it would add Perl, LLVM and a cluster of Debian's. Its libraries are
# above.
POSTGRESQL = "/usr/lib/postgresql/17"
UNPACKED = ["postgresql-17", "postgresql-client-17", "prometheus-node-exporter", "prometheus-postgres-exporter"]
QEMU = ["ovmf", "qemu-system-x86", "qemu-utils", "swtpm"]

# Directories of /usr/lib/modules/*/kernel that a guest may use. The other directories are 90 % of its size.
MODULES = [
    "arch/x86/crypto",
    "crypto",
    "lib",
    "drivers/block",
    "drivers/char/hw_random",
    "drivers/char/virtio_console.ko.xz",
    "drivers/dca",
    "drivers/i2c/algos",
    "drivers/input/keyboard",
    "drivers/net/ethernet/intel/igb",
    "drivers/net/net_failover.ko.xz",
    "drivers/net/virtio_net.ko.xz",
    "drivers/nvme/common",
    "drivers/nvme/host",
    "drivers/pps",
    "drivers/ptp",
    "drivers/tty",
    "drivers/virtio",
    "fs/autofs",
    "fs/configfs",
    "fs/ext4",
    "fs/fat",
    "fs/jbd2",
    "fs/mbcache.ko.xz",
    "fs/nls",
    "net/core",
    "net/ipv4",
    "net/ipv6",
    "net/netfilter",
    "net/packet",
    "net/sched",
    "net/tls",
    "net/unix",
]

# Files of a guest besides its packages: only what the driver needs to talk to it, and what makes it boot in seconds
# although every instruction is emulated.
FILES = {
    "etc/fstab": "",
    "etc/resolv.conf": "",
    # With a machine id, systemd does not treat this as a first boot and apply presets.
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/systemd/system/test-shell.service": """\
[Unit]
Description=The driver's shell
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Service]
Environment=HOME=/root USER=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
WorkingDirectory=/root
ExecStart=/usr/local/sbin/test-shell
KillSignal=SIGHUP
OOMScoreAdjust=-1000
""",
    # A virtio port is not a terminal: it neither echoes nor drops bytes.
    "usr/local/sbin/test-shell": """\
#!/bin/bash
modprobe virtio_console
until for port in /sys/class/virtio-ports/*; do
    [[ -e $port/name && $(<"$port/name") == shell ]] && break
done; do sleep 0.1; done
device=/dev/${port##*/}
until [[ -e $device ]]; do sleep 0.1; done
exec <>"$device" >&0 2>/dev/console
echo shell is ready
PS1= exec /bin/bash --norc --noprofile
""",
}
EXECUTABLE = {"usr/local/sbin/test-shell"}
WANTED = {
    "multi-user.target": ["/usr/lib/systemd/system/systemd-networkd.service"],
    "sysinit.target": ["/etc/systemd/system/test-shell.service"],
}
MASKED = [
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty-static.service",
    "getty@tty1.service",
    # A test starts haproxy with its own settings.
    "haproxy.service",
    "ldconfig.service",
    # Tests that need irqbalance start it.
    "irqbalance.service",
    "serial-getty@ttyS0.service",
    "ssh.socket",
    "sshd-unix-local.socket",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-networkd-wait-online.service",
    "systemd-pstore.service",
    "systemd-update-done.service",
]


def _mmdebstrap(target: Path, packages: list[str], *options: str) -> None:
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            '--aptopt=Acquire::Languages "none"',
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/lib/udev/hwdb.d/*",
            f"--include={','.join(packages)}",
            *options,
            SUITE,
            str(target),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=900,
    )


# The kernel's package is unpacked too, not installed, since Debian's initrd takes long to make and to boot.
_UNPACK = (
    """chroot "$1" sh -ec 'cd /tmp; apt-cache depends linux-image-amd64"""
    """ | sed -n "s/.*Depends: \\(linux-image-[0-9][^ ]*\\).*/\\1/p" | head -n 1"""
    f""" | xargs apt-get -qq -o APT::Sandbox::User=root download {' '.join(UNPACKED)}';"""
    """ for package in "$1"/tmp/*.deb; do dpkg-deb -x "$package" "$1" && rm "$package"; done"""
)


def _thin_out(root: Path) -> str:
    """Keeps the modules of MODULES, unpacked; returns the kernel's version."""
    modules = next((root / "usr/lib/modules").iterdir())
    keep = [modules / "kernel" / name for name in MODULES]
    for path in modules.rglob("*.ko.xz"):
        if not any(path == wanted or wanted in path.parents for wanted in keep):
            path.unlink()
    # Decompressing them in the guest takes longer than the kernel's whole start.
    subprocess.run(f"find {modules} -name '*.ko.xz' -print0 | xargs -0 xz -d", shell=True, check=True)
    subprocess.run(["chroot", root, "depmod", modules.name], check=True)
    return modules.name


def _settle(root: Path) -> None:
    # Debian keeps them in a directory per version, behind wrappers in Perl.
    shutil.rmtree(root / POSTGRESQL.lstrip("/") / "lib/bitcode")
    for name in ("initdb", "postgres", "psql"):
        (root / "usr/bin" / name).symlink_to(f"{POSTGRESQL}/bin/{name}")
    for name in ("node", "postgres"):
        (root / f"usr/bin/{name}_exporter").symlink_to(f"prometheus-{name}-exporter")
    units = root / "etc/systemd/system"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name in EXECUTABLE else 0o644)
    for target, wanted in WANTED.items():
        for unit in wanted:
            link = units / f"{target}.wants" / Path(unit).name
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(unit)
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    # The journal is read if a test fails.
    (root / "var/log/journal").mkdir(exist_ok=True)
    for name in ("etc/.updated", "var/.updated"):
        (root / name).touch()
        # A time later than /usr's, so that systemd updates nothing at boot. mke2fs keeps only 31 bits of it.
        os.utime(root / name, (2**31 - 1, 2**31 - 1))


@dataclass
class Guest:
    """A root file system as a tree and as a disk, and the kernel that boots it."""

    tree: Path
    disk: Path
    kernel: Path
    initrd: Path


def guest() -> Guest:
    def make(directory: Path) -> None:
        tree = directory / "tree"
        _mmdebstrap(tree, GUEST, "--variant=minbase", f"--customize-hook={_UNPACK}")
        version = _thin_out(tree)
        _settle(tree)
        (tree / f"boot/vmlinuz-{version}").rename(directory / "kernel")
        (directory / "initrd").write_bytes(initrd.build(tree, tree / "usr/lib/modules" / version))
        subprocess.run(
            ["mke2fs", "-q", "-t", "ext4", "-L", "root", "-m", "0", "-E", "lazy_itable_init=1"]
            + ["-d", tree, directory / "disk", "1536M"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    recipe = cache.digest(Path(__file__).read_bytes(), Path(initrd.__file__).read_bytes())
    directory = cache.kept("debian", recipe, make)
    return Guest(directory / "tree", directory / "disk", directory / "kernel", directory / "initrd")


class Programs:
    """QEMU's programs, which run with the C library of their own release."""

    def __init__(self) -> None:
        packages = cache.digest(SUITE, *QEMU)
        self.root = cache.kept("qemu", packages, lambda path: _mmdebstrap(path, QEMU, "--variant=extract")) / "usr"
        self.libraries = self.root / "lib/x86_64-linux-gnu"

    def command(self, name: str) -> list[str]:
        """Returns the start of a command line that runs this program; its own arguments follow."""
        loader = self.libraries / "ld-linux-x86-64.so.2"
        libraries = f"{self.libraries}:{self.libraries}/swtpm"
        return [str(loader), "--library-path", libraries, str(self.root / "bin" / name)]

    def environment(self) -> dict[str, str]:
        return os.environ | {"QEMU_MODULE_DIR": str(self.libraries / "qemu")}

    def firmware(self) -> list[str]:
        """Returns QEMU's arguments for the directories of its ROMs."""
        return ["-L", str(self.root / "share/qemu"), "-L", str(self.root / "share/seabios")]

    @property
    def ovmf(self) -> Path:
        """Returns UEFI for virtual machines: its code, and the variables of a new machine."""
        return self.root / "share/OVMF"
