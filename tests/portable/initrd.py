"""A guest's initrd: busybox and the modules on the way to the root file system.

A payload, which is a tar archive as a disk, is unpacked over the root once, before systemd starts.
"""

import stat
from pathlib import Path

MODULES = ["virtio_blk", "virtio_pci", "nvme", "ext4", "crc32c_generic"]

# The initrd prints this when the guest's own system takes over.
BEGINS = "the system begins"

_INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
{insmod}
# Find disks by serial number, not by the order in which they appear.
disk() {{
    for serial in /sys/block/vd*/serial /sys/block/nvme*/device/serial; do
        [ -e $serial ] || continue
        block=${{serial#/sys/block/}}
        # NVMe cuts serials after twenty characters.
        [ "$($B tr -d ' ' <$serial)" = $1 ] && echo /dev/${{block%%/*}}
    done
}}
tries=0
while [ -z "$(disk root)" ] && [ $tries -lt 300 ]; do
    $B usleep 20000
    tries=$((tries + 1))
done
$B mount -t ext4 -o rw "$(disk root)" /root || exec $B poweroff -f
payload=$(disk payload)
if [ -n "$payload" ] && [ ! -e /root/.payload ]; then
    $B tar -x -f "$payload" -C /root || exec $B poweroff -f
    $B sync
    $B touch /root/.payload
    $B sync
fi
# Use the units of the generation that the boot loader chose.
for parameter in $($B cat /proc/cmdline); do
    case $parameter in
        init=/generations/*)
            units=/root${{parameter#init=}}
            units=${{units%/init}}/units
            if [ -d "$units" ]; then
                $B mount -t tmpfs -o mode=0755,nosuid,nodev run /root/run
                $B mkdir -p /root/run/systemd/system
                $B cp -a "$units/." /root/run/systemd/system/
            fi
            ;;
    esac
done
$B umount /proc
$B umount /sys
$B mount --move /dev /root/dev
echo "{begins}"
exec $B switch_root /root /usr/lib/systemd/systemd
"""


class _Archive:
    """Returns a cpio archive in the format "newc" (kernel, Documentation/driver-api/early-userspace/buffer-format)."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.entries = 0

    def add(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self.entries += 1
        path = name.encode() + b"\0"
        fields = (self.entries, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
        self.data += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        self._pad()
        self.data += content
        self._pad()

    def _pad(self) -> None:
        self.data += b"\0" * (-len(self.data) % 4)


def _in_order(modules: Path) -> list[Path]:
    """Returns the modules and their dependencies, dependencies first."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).name.split(".")[0].replace("-", "_")] = [path, *others.split()]
    order: list[str] = []
    for name in MODULES:
        # Built-in modules are not listed.
        for path in reversed(needs.get(name, [])):
            if path not in order:
                order.append(path)
    return [modules / path for path in order]


def build(tree: Path, modules: Path) -> bytes:
    archive = _Archive()
    for directory in ("bin", "dev", "modules", "proc", "root", "sys"):
        archive.add(directory, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, (tree / "usr/bin/busybox").read_bytes())
    insmod = []
    for path in _in_order(modules):
        archive.add(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
        insmod.append(f"$B insmod /modules/{path.name}")
    archive.add("init", stat.S_IFREG | 0o755, _INIT.format(insmod="\n".join(insmod), begins=BEGINS).encode())
    archive.add("TRAILER!!!", 0)
    return bytes(archive.data)
