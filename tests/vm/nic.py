# Queues of real drivers on their CPUs: placed, verified, placed again after the link and its channels changed, and
# restored. On every card of the box with several queues.

import json
import re

start_all()
box.wait_for_unit("multi-user.target")
# Drivers appear once udev has seen their cards.
box.wait_until_succeeds("ls -d /sys/class/net/*/queues/rx-1")
# From here on, only this test places queues.
box.succeed("systemctl stop 'linerate-nic-*'")
box.execute("linerate nic undo")

CPUS = int(box.succeed("nproc"))


def driver_of(card: str) -> str:
    return box.succeed(f"basename $(readlink /sys/class/net/{card}/device/driver)").strip()


def interrupts(card: str) -> dict[str, int]:
    """Returns the card's interrupts that serve queues, by the driver's names for them."""
    device = box.succeed(f"readlink -f /sys/class/net/{card}/device").strip()
    if driver_of(card) == "virtio_net":
        # The vectors belong to the PCI device, above the virtio device.
        pattern = f"{device.rsplit('/', 1)[1]}-(input|output)\\.[0-9]+"
    else:
        pattern = f"{card}-(TxRx|rx|tx)-[0-9]+"
    found = {}
    for line in box.succeed("cat /proc/interrupts").splitlines():
        words = line.split()
        if words and re.fullmatch(pattern, words[-1]):
            found[words[-1]] = int(words[0].rstrip(":"))
    return found


def masks(card: str) -> dict[str, str]:
    """Returns everything that placement may write, as it is now."""
    files = " ".join(f"/proc/irq/{irq}/smp_affinity" for irq in interrupts(card).values())
    lines = box.succeed(f"grep -H . {files} /sys/class/net/{card}/queues/*/[rx]ps_cpus").splitlines()
    return dict(line.rsplit(":", 1) for line in lines)


def served_by(card: str, by: str = "smp_affinity_list") -> dict[str, str]:
    return {
        name: box.succeed(f"cat /proc/irq/{irq}/{by}").strip()
        for name, irq in interrupts(card).items()
    }


def apply(card: str) -> None:
    box.succeed(f"linerate nic apply {card}")
    box.succeed(f"linerate nic verify {card}")


cards = [
    card
    for card in box.succeed("ls /sys/class/net").split()
    if box.execute(f"test -e /sys/class/net/{card}/queues/rx-1 -a -e /sys/class/net/{card}/device")[0] == 0
]
assert cards, "the box has no card with several queues"
print(f"    {', '.join(f'{card} ({driver_of(card)})' for card in cards)}")

for card in cards:
    with subtest(f"{card}: a plan changes nothing"):
        before = masks(card)
        planned = json.loads(box.succeed(f"linerate --json nic plan {card}"))
        assert planned["interfaces"], planned
        assert masks(card) == before

    with subtest(f"{card}: each queue gets a CPU of its own, and every CPU a queue to send by"):
        names = interrupts(card)
        # igb gives each direction a separate interrupt if it has enough.
        assert len(names) in (4, 8), names
        apply(card)
        for direction in ("input", "output", "TxRx", "rx", "tx"):
            cpus = [cpu for name, cpu in served_by(card).items() if f"-{direction}" in name or f"{direction}." in name]
            assert len(set(cpus)) == len(cpus), served_by(card)
        sends = [int(mask.replace(",", ""), 16) for name, mask in masks(card).items() if name.endswith("xps_cpus")]
        together = 0
        for mask in sends:
            assert mask & together == 0, sends
            together |= mask
        assert together == 2**CPUS - 1, sends

    with subtest(f"{card}: what a CPU sends is completed where its queue was placed"):
        subnet = f"10.77.{cards.index(card)}"
        box.succeed(f"ip address add {subnet}.1/24 broadcast + dev {card}")
        for sender in range(CPUS):
            box.execute(f"taskset -c {sender} ping -b -q -c 20 -i 0.02 -W 1 {subnet}.255")
        # An interrupt moves when it fires: those for sending have fired now.
        moved = served_by(card, "effective_affinity_list")
        for name, cpu in served_by(card).items():
            if "input" not in name and "-rx-" not in name:
                assert moved[name] == cpu, f"{name} is served by {moved[name]} instead of {cpu}"

    with subtest(f"{card}: applied again, nothing changes"):
        placed = masks(card)
        apply(card)
        assert masks(card) == placed

    with subtest(f"{card}: undo puts back what was there"):
        box.succeed(f"linerate nic undo {card}")
        assert masks(card) == before, (masks(card), before)
        assert box.execute("ls /run/linerate/*")[1].strip() == ""
        apply(card)

    with subtest(f"{card}: what is changed by hand is found, and mended"):
        irq = next(iter(interrupts(card).values()))
        box.succeed(f"echo f > /proc/irq/{irq}/smp_affinity")
        status, said = box.execute(f"linerate nic verify {card}")
        assert status == 3, f"{status}: {said}"
        apply(card)
        assert masks(card) == placed

    with subtest(f"{card}: placement is as applied after the link was down and up"):
        box.succeed(f"ip link set {card} down", f"ip link set {card} up")
        box.wait_until_succeeds(f"grep -q 1 /sys/class/net/{card}/carrier")
        # Drivers request their interrupts again, and the kernel forgets XPS.
        apply(card)
        assert sorted(masks(card).values()) == sorted(placed.values())

    with subtest(f"{card}: placement follows the number of channels"):
        box.succeed(f"ethtool -L {card} combined 2")
        apply(card)
        # virtio keeps the interrupts of unused queues.
        used = {cpu for name, cpu in served_by(card).items() if name[-1] in "01"}
        assert len(used) == 2, served_by(card)
        box.succeed(f"ethtool -L {card} combined 4")
        apply(card)
        assert len(box.succeed(f"ls -d /sys/class/net/{card}/queues/rx-*").split()) == 4
        # The driver has chosen new CPUs for its new queues, so the earlier state can't be restored.
        box.succeed(f"linerate nic undo {card}")
        assert box.execute("ls /run/linerate/*")[1].strip() == ""

    if driver_of(card) == "igb":
        with subtest(f"{card}: with more than half of the queues it could have, both directions share an interrupt"):
            before = masks(card)
            box.succeed(f"linerate nic apply {card} --queues 6")
            box.succeed(f"linerate nic verify {card}")
            served = served_by(card)
            assert sorted(served) == [f"{card}-TxRx-{queue}" for queue in range(6)], served
            # Six queues on four CPUs: the numbers of queues per CPU differ by at most one.
            queues = [list(served.values()).count(str(cpu)) for cpu in range(CPUS)]
            assert sum(queues) == 6 and max(queues) - min(queues) <= 1, served
            for sender in range(CPUS):
                box.execute(f"taskset -c {sender} ping -b -q -c 20 -i 0.02 -W 1 {subnet}.255")
            # Those that fired have moved: a CPU sends through a single queue.
            moved = served_by(card, "effective_affinity_list")
            assert sum(moved[name] == served[name] for name in served) >= CPUS, (moved, served)
            box.succeed(f"linerate nic undo {card}")
            assert len(interrupts(card)) == 8, interrupts(card)
            assert sorted(masks(card).values()) == sorted(before.values())

with subtest("undo puts back what was there, byte for byte, although apply was killed"):
    for card in cards:
        before = masks(card)
        for _ in range(3):
            box.execute(f"timeout --signal=KILL 0.05 linerate nic apply {card}")
        box.succeed(f"linerate nic apply {card}; linerate nic undo {card}")
        assert masks(card) == before, (masks(card), before)

with subtest("apply does not fight irqbalance"):
    box.succeed("systemd-run --unit balance irqbalance --foreground")
    box.wait_until_succeeds("pidof irqbalance")
    before = masks(cards[0])
    status, said = box.execute(f"linerate nic apply {cards[0]} 2>&1")
    assert status == 1 and "irqbalance" in said, f"{status}: {said}"
    box.succeed("systemctl stop balance")



def rings(card: str) -> list[str]:
    """Returns those for receiving and for sending."""
    now = box.succeed(f"ethtool -g {card}").split("Current hardware settings:")[1]
    return re.findall(r"^(?:RX|TX):\s+(\d+)", now, re.MULTILINE)


def differs(profile: dict[str, object]) -> list[str]:
    """Returns what doctor finds to differ from a profile."""
    text = json.dumps({"nic": {"card": profile}})
    said = box.execute(f"linerate --json doctor --interval 0 --profile <(echo '{text}')")[1]
    rules = ("channels", "rings", "coalescing")
    return [one["subject"] for one in json.loads(said)["findings"] if one["rule"] in rules]


for card in cards:
    if driver_of(card) == "igb":
        with subtest(f"{card}: rings are as they were set, with other channels too"):
            box.succeed(f"ethtool -G {card} rx 1024 tx 512")
            apply(card)
            assert rings(card) == ["1024", "512"]
            box.succeed(f"linerate nic apply {card} --queues 2")
            assert rings(card) == ["1024", "512"]
            box.succeed(f"linerate nic undo {card}")
            assert rings(card) == ["1024", "512"]

        with subtest(f"{card}: doctor sees channels, rings and coalescing as ethtool set them"):
            box.succeed(f"ethtool -C {card} rx-usecs 50")
            profile: dict[str, object] = {
                "driver": "igb",
                "interface": card,
                "channels": {"combined": 4},
                "rings": {"rx": 1024, "tx": 512},
                "coalescing": {"rx_usecs": 50},
            }
            assert differs(profile) == [], differs(profile)
            box.succeed(
                f"ethtool -L {card} combined 3", f"ethtool -G {card} rx 512", f"ethtool -C {card} rx-usecs 20"
            )
            expected = [f"{card} combined", f"{card} rx", f"{card} rx-usecs"]
            assert sorted(differs(profile)) == sorted(expected), differs(profile)
            box.succeed(f"ethtool -L {card} combined 4")
