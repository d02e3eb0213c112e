"""The tests: which machines a script of tests/vm has, and what is in them."""

from dataclasses import dataclass, field

from machine import Hardware
from network import Card


@dataclass(frozen=True)
class Role:
    # The rendered host that the machine is; None: Debian with the test's programs, as a visitor's.
    host: str | None = None
    hardware: Hardware = field(default_factory=Hardware)


BOX = Role("vm")
VISITOR = Role()
# Two kinds of cards with four queues, on four CPUs.
WITH_QUEUES = Role("vm", Hardware(cards=(Card(queues=4), Card("igb")), cpus=4))

TESTS: dict[str, dict[str, Role]] = {
    "services": {"box": BOX, "visitor": VISITOR},
    "tuning": {"box": WITH_QUEUES},
    "nic": {"box": WITH_QUEUES},
    "watch": {"box": WITH_QUEUES},
    "firewall": {"box": BOX, "visitor": VISITOR},
    "restart": {"box": BOX, "visitor": VISITOR},
    "power-cut": {"box": BOX, "visitor": VISITOR},
}

# Scripts of tests/vm that have no portable twin, and why.
NOT_PORTABLE: dict[str, str] = {
    "image": "an image is built by Nix alone",
    "update": "four boots by emulated firmware take as long as all other tests; tests/fallback.sh boots the loader alone",
}
