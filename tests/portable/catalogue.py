"""The tests: which machines a script of tests/vm has, and what is in them."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from machine import Hardware
from network import Card

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Role:
    # The rendered host that the machine is; None: Debian with the test's programs, as a visitor's.
    host: str | None = None
    hardware: Hardware = field(default_factory=Hardware)
    # Scripts of this repository that it has, by the names that they are called by.
    scripts: dict[str, str] = field(default_factory=dict)
    # What these begin with, as Nix's toShellVars has it.
    variables: dict[str, str | int] = field(default_factory=dict)
    # Programs likewise, which say themselves what runs them.
    programs: dict[str, str] = field(default_factory=dict)
    # NixOS itself, as .ci/nixos.sh builds it by this name; and how large its disk is, in MiB.
    nixos: str | None = None
    disk_mib: int | None = None
    # By a firmware in setup mode, which takes the keys that it is brought.
    secure_boot: bool = False
    # Or as that machine of the test leaves it on its first empty disk.
    installed_by: str | None = None


BOX = Role("vm")
VISITOR = Role(programs={name: f"tests/vm/programs/{name}" for name in ("h3-load", "load")})
# Two kinds of cards with four queues, on four CPUs.
WITH_QUEUES = Role("vm", Hardware(cards=(Card(queues=4), Card("igb")), cpus=4))

# No host, but the medium that puts one onto a disk: a medium, two disks, and one that is too small.
INSTALLER = Role(
    None,
    Hardware(empty_disks_mib=(9216, 10240, 11264, 1024)),
    {"linerate-choose": "hosts/installer/choose.sh", "linerate-install": "hosts/installer/install.sh"},
    json.loads((ROOT / "modules/appliance/disk-layout.json").read_text()),
)

# NixOS itself from its firmware on, on a disk that is larger than what was written to it; and the same with a watchdog.
METAL = Role(nixos="metal", disk_mib=12288, hardware=Hardware(memory_mib=1024))
WATCHED = replace(METAL, hardware=Hardware(memory_mib=1024, watchdog=True))
# The same with all that it can serve.
SERVING = replace(METAL, nixos="serving")
# Of EC2: its root is on NVMe, and it keeps 1 % of 32 GiB free.
CLOUD = Role(nixos="cloud", disk_mib=12288, hardware=Hardware(memory_mib=2048, disk="nvme"))
# The installer's medium, a machine with one other disk, and that disk afterwards.
MEDIUM = Role(nixos="medium", hardware=Hardware(memory_mib=1024, empty_disks_mib=(10240,)))
INSTALLED = Role(installed_by="medium", disk_mib=10240, hardware=Hardware(memory_mib=1024))

# The host as an image that is updated as a whole, on a disk with room for both slots and /var.
APPLIANCE = Role(nixos="appliance", disk_mib=4096, hardware=Hardware(memory_mib=1024))

# The same with its boot files signed and /var sealed to a TPM, on a machine that has both.
SEALED = Role(nixos="sealed", disk_mib=4096, hardware=Hardware(memory_mib=1024, tpm=True), secure_boot=True)

# Rendered when they are needed: tests/companions.nix, tests/console.nix and tests/late.nix.
WITH_COMPANIONS = Role("companions", Hardware(memory_mib=1024))
WITH_CONSOLE = replace(WITH_QUEUES, host="console")
LATE = Role("late")

# The longest first, so that lanes end at about the same time.
TESTS: dict[str, dict[str, Role]] = {
    "services": {"box": BOX, "visitor": VISITOR},
    "firewall": {"box": BOX, "visitor": VISITOR},
    "restart": {"box": BOX, "visitor": VISITOR},
    "power-cut": {"box": BOX, "visitor": VISITOR},
    "image": {"box": METAL},
    "update": {"box": METAL},
    "switch": {"box": SERVING, "visitor": VISITOR},
    "appliance": {"box": APPLIANCE},
    "appliance-update": {"box": APPLIANCE},
    "appliance-cuts": {"box": APPLIANCE},
    "sealed": {"box": SEALED},
    "aws": {"box": CLOUD, "visitor": VISITOR},
    "metadata": {"box": CLOUD, "visitor": VISITOR},
    "install": {"medium": MEDIUM, "box": INSTALLED},
    "hang": {"box": WATCHED},
    "late": {"box": LATE, "visitor": VISITOR},
    "companions": {"box": WITH_COMPANIONS, "visitor": VISITOR},
    # As it boots, then by commands, and last by what follows them, which stops a service.
    "tuning": {"box": WITH_QUEUES},
    "nic": {"box": WITH_QUEUES},
    "watch": {"box": WITH_QUEUES},
    "console": {"box": WITH_CONSOLE},
    "installer": {"box": INSTALLER},
}

# Tests that may begin where one that held has ended, on its machines: to boot them takes longer than most scripts.
GOING_ON = {"firewall", "restart", "power-cut", "update", "appliance-update", "appliance-cuts", "metadata", "nic", "watch"}

# Tests that run when they are named alone: they are long, and what they are about changes seldom. Of a switch under load one run
# in six lost connections, beside much else and with limits that were shorter: it is not known why.
BY_NAME = {"appliance-cuts", "sealed", "switch"}
