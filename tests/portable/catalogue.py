"""The tests: which machines a script of tests/vm has, and what is in them."""

from dataclasses import dataclass, field

from machine import Hardware
from network import Card


@dataclass(frozen=True)
class Role:
    # The rendered host that the machine is; None: Debian with the test's programs, as a visitor's.
    host: str | None = None
    hardware: Hardware = field(default_factory=Hardware)
    # Scripts of this repository that it has, by the names that they are called by.
    scripts: dict[str, str] = field(default_factory=dict)
    # NixOS itself, as .ci/nixos.sh builds it by this name; and how large its disk is, in MiB.
    nixos: str | None = None
    disk_mib: int | None = None


BOX = Role("vm")
VISITOR = Role()
# Two kinds of cards with four queues, on four CPUs.
WITH_QUEUES = Role("vm", Hardware(cards=(Card(queues=4), Card("igb")), cpus=4))

# A host of metal from its firmware on: UEFI, systemd-boot, and an entry for each generation.
FROM_FIRMWARE = Role("tengbe", Hardware(uefi=True))

# Its root is on NVMe, and it keeps 1 % of 32 GiB free.
ON_EC2 = Role("aws-c6i", Hardware(memory_mib=2048, disk="nvme"))

# The same, with a watchdog.
WATCHED = Role("tengbe", Hardware(uefi=True, watchdog=True))

# No host, but the medium that puts one onto a disk: a medium, two disks, and one that is too small.
INSTALLER = Role(
    None,
    Hardware(empty_disks_mib=(9216, 10240, 11264, 1024)),
    {"linerate-choose": "hosts/installer/choose.sh", "linerate-install": "hosts/installer/install.sh"},
)

# NixOS itself, from an image on a disk that is larger.
IMAGE = Role(nixos="metal", disk_mib=12288, hardware=Hardware(memory_mib=1024))

# Rendered when they are needed: tests/companions.nix, tests/late.nix, and aws-c6i with what asks for the instance's
# metadata.
WITH_COMPANIONS = Role("companions", Hardware(memory_mib=1024))
LATE = Role("late")
WITH_METADATA = Role("ec2", ON_EC2.hardware)

# The longest first, so that lanes end at about the same time.
TESTS: dict[str, dict[str, Role]] = {
    "services": {"box": BOX, "visitor": VISITOR},
    "firewall": {"box": BOX, "visitor": VISITOR},
    "restart": {"box": BOX, "visitor": VISITOR},
    "power-cut": {"box": BOX, "visitor": VISITOR},
    "image": {"box": IMAGE},
    "update": {"box": FROM_FIRMWARE},
    "hang": {"box": WATCHED},
    "late": {"box": LATE, "visitor": VISITOR},
    "companions": {"box": WITH_COMPANIONS, "visitor": VISITOR},
    "watch": {"box": WITH_QUEUES},
    "nic": {"box": WITH_QUEUES},
    "aws": {"box": ON_EC2},
    "metadata": {"box": WITH_METADATA, "visitor": VISITOR},
    "tuning": {"box": WITH_QUEUES},
    "installer": {"box": INSTALLER},
}

# Tests that may begin where one that held has ended, on its machines: to boot them takes longer than most scripts.
GOING_ON = {"firewall", "restart", "power-cut"}
