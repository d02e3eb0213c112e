"""The tests: which machines each script of tests/vm needs, and what they contain."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from machine import Hardware
from network import Card

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Role:
    # The rendered host that the machine runs. None: plain Debian with the test's programs, as for a visitor.
    host: str | None = None
    hardware: Hardware = field(default_factory=Hardware)
    # Scripts of this repository that the machine has, by the names that call them.
    scripts: dict[str, str] = field(default_factory=dict)
    # Shell variables at the start of these scripts, as Nix's toShellVars writes them.
    variables: dict[str, str | int] = field(default_factory=dict)
    # Programs of this repository, by name; each has its own #! line.
    programs: dict[str, str] = field(default_factory=dict)
    # NixOS itself, as .ci/nixos.sh builds it under this name, and the size of its disk in MiB.
    nixos: str | None = None
    disk_mib: int | None = None
    # Whether the firmware starts in setup mode, and enrolls the keys on the EFI partition.
    secure_boot: bool = False
    # The test's machine that installs this one, if any, on that machine's first empty disk.
    installed_by: str | None = None


# Its services have several workers.
BOX = Role("vm", Hardware(cpus=2))
VISITOR = Role(programs={name: f"tests/vm/programs/{name}" for name in ("h3-load", "load")})
# A machine with a database, a load balancer in front of the boxes, and the visitors' programs.
STORE = Role(None, programs={name: f"tests/vm/programs/{name}" for name in ("load", "writes")})
# One whose clock counts instructions.
COUNTING = Role("vm", Hardware(counts_instructions=True))
# Two kinds of cards with four queues, on four CPUs.
WITH_QUEUES = Role("vm", Hardware(cards=(Card(queues=4), Card("igb")), cpus=4))

# Debian with the installer's scripts, three disks to choose from, and one that is too small.
INSTALLER = Role(
    None,
    Hardware(empty_disks_mib=(9216, 10240, 11264, 1024)),
    {"linerate-choose": "hosts/installer/choose.sh", "linerate-install": "hosts/installer/install.sh"},
    json.loads((ROOT / "modules/appliance/disk-layout.json").read_text()),
)

# NixOS itself, booted by firmware from a disk larger than the image, with a watchdog.
METAL = Role(nixos="metal", disk_mib=12288, hardware=Hardware(memory_mib=1024, watchdog=True))
# The same with everything that it can serve, and without a watchdog.
SERVING = replace(METAL, nixos="serving", hardware=Hardware(memory_mib=1024))
# The host for EC2: its root is on NVMe, and it keeps 1 % of 32 GiB free.
CLOUD = Role(nixos="cloud", disk_mib=12288, hardware=Hardware(memory_mib=2048, disk="nvme"))
# The installer's medium on a machine with one more disk; and a machine that boots from that disk afterwards.
MEDIUM = Role(nixos="medium", hardware=Hardware(memory_mib=1024, empty_disks_mib=(10240,)))
INSTALLED = Role(installed_by="medium", disk_mib=10240, hardware=Hardware(memory_mib=1024))

# The host as an image, on a disk with room for both slots and /var, with the memory that a patched update needs.
APPLIANCE = Role(nixos="appliance", disk_mib=4096, hardware=Hardware(memory_mib=1536))

# The host for EC2 as such an image.
CLOUD_APPLIANCE = replace(CLOUD, nixos="cloud-appliance", disk_mib=4096)

# The same with signed boot files and /var sealed to a TPM, on a machine with Secure Boot and a TPM.
SEALED = Role(nixos="sealed", disk_mib=4096, hardware=Hardware(memory_mib=1024, tpm=True), secure_boot=True)

# One of several that share a database.
SHARING = Role(nixos="sharing", disk_mib=4096, hardware=Hardware(memory_mib=1024))

# Hosts that are rendered only when needed: tests/companions.nix, tests/console.nix and tests/late.nix.
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
    "rolling": {"east": SHARING, "store": STORE, "west": SHARING},
    "sealed": {"box": SEALED},
    "aws": {"box": CLOUD, "visitor": VISITOR},
    "metadata": {"box": CLOUD, "visitor": VISITOR},
    "cloud-appliance": {"box": CLOUD_APPLIANCE, "visitor": VISITOR},
    "cloud-metadata": {"box": CLOUD_APPLIANCE, "visitor": VISITOR},
    "install": {"medium": MEDIUM, "box": INSTALLED},
    "late": {"box": LATE, "visitor": VISITOR},
    "companions": {"box": WITH_COMPANIONS, "visitor": VISITOR},
    # In this order: the state after boot, then commands, then the service that follows changes, since that test stops a
    # service.
    "tuning": {"box": WITH_QUEUES},
    "nic": {"box": WITH_QUEUES},
    "watch": {"box": WITH_QUEUES},
    "console": {"box": WITH_CONSOLE},
    "installer": {"box": INSTALLER},
    "ktls": {"box": COUNTING},
}

# Tests that may start on the machines of a test that passed, since booting takes longer than most scripts.
GOING_ON = {
    "firewall",
    "restart",
    "power-cut",
    "update",
    "appliance-update",
    "appliance-cuts",
    "metadata",
    "cloud-metadata",
    "nic",
    "watch",
}

# Tests that take about ten minutes, where others take five at most.
LONG = {"appliance-update", "update"}

# Tests that run only when named: they take long, and what they test seldom changes. One measures instead.
BY_NAME = {"appliance-cuts", "cloud-appliance", "cloud-metadata", "ktls", "rolling", "sealed", "switch"}

# Tests with the script of another, which also holds on their machines.
SCRIPT_OF = {"cloud-appliance": "appliance", "cloud-metadata": "metadata"}
