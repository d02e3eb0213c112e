# Queues stay where they were placed without any intervention: `linerate nic watch` follows links and channels, and
# `linerate doctor` finds what was changed by hand.

import json

start_all()
box.wait_for_unit("multi-user.target")
# Drivers appear once udev has seen their cards.
box.wait_until_succeeds("ls -d /sys/class/net/*/queues/rx-1")
# From here on, only this test places queues.
box.succeed("systemctl stop 'linerate-nic-*'")
box.execute("linerate nic undo")

cards = [
    card
    for card in box.succeed("ls /sys/class/net").split()
    if box.execute(f"test -e /sys/class/net/{card}/queues/rx-1 -a -e /sys/class/net/{card}/device")[0] == 0
]
assert cards, "the box has no card with several queues"


def driver_of(card: str) -> str:
    return box.succeed(f"basename $(readlink /sys/class/net/{card}/device/driver)").strip()


def queues(card: str) -> int:
    return len(box.succeed(f"ls -d /sys/class/net/{card}/queues/rx-*").split())


def xps(card: str) -> list[str]:
    return box.succeed(f"cat /sys/class/net/{card}/queues/tx-*/xps_cpus").split()


for card in cards:
    unit = f"watch-{card}"
    with subtest(f"{card} ({driver_of(card)}): a watch places queues, and says what it did"):
        box.succeed(f"systemd-run --unit {unit} --property Type=exec linerate nic watch {card}")
        box.wait_until_succeeds(f"journalctl -u {unit} --no-pager | grep -q 'settings changed'")
        box.succeed(f"linerate nic verify {card}")
        placed = xps(card)

    with subtest(f"{card}: queues are placed again after the link was down and up"):
        box.succeed(f"ip link set {card} down", f"ip link set {card} up")
        # What a driver loses with the link is lost at once, and so is this.
        box.succeed(f"echo 0 > /sys/class/net/{card}/queues/tx-0/xps_cpus")
        box.wait_until_succeeds(f"linerate nic verify {card}")
        assert xps(card) == placed, (xps(card), placed)

    with subtest(f"{card}: a link that flaps settles"):
        for _ in range(5):
            box.succeed(f"ip link set {card} down", f"ip link set {card} up")
        box.wait_until_succeeds(f"linerate nic verify {card}")
        box.succeed(f"systemctl is-active {unit}")

    with subtest(f"{card}: other channels are followed"):
        box.succeed(f"ethtool -L {card} combined 2")
        box.wait_until_succeeds(f"linerate nic verify {card}")
        assert queues(card) == 2
        box.succeed(f"ethtool -L {card} combined 4")
        box.wait_until_succeeds(f"linerate nic verify {card}")
        assert queues(card) == 4 and xps(card) == placed, xps(card)

    with subtest(f"{card}: what it cannot do now it does later"):
        box.succeed("systemd-run --unit balance irqbalance --foreground")
        box.wait_until_succeeds("pidof irqbalance")
        box.succeed(f"ip link set {card} down", f"ip link set {card} up")
        box.wait_until_succeeds(f"journalctl -u {unit} --no-pager | grep -q 'irqbalance (process'")
        box.succeed("systemctl stop balance")
        box.succeed(f"ip link set {card} down", f"ip link set {card} up")
        box.wait_until_succeeds(f"linerate nic verify {card}")
        box.succeed(f"systemctl stop {unit}")

    with subtest(f"{card}: the number of queues is set, kept, and put back"):
        box.succeed(f"linerate nic undo {card}")
        applied = json.loads(box.succeed(f"linerate --json nic apply {card} --queues 3"))
        assert applied["interfaces"][0]["channels"] == 3, applied
        assert queues(card) == 3
        box.succeed(f"linerate nic verify {card}")
        again = json.loads(box.succeed(f"linerate --json nic apply {card} --queues 3"))
        assert again["interfaces"][0]["changed"] == [] and again["interfaces"][0]["channels"] is None, again
        box.succeed(f"ethtool -L {card} combined 4")
        status, said = box.execute(f"linerate nic verify {card}")
        assert status == 3 and "should have 3 channels" in said, said
        box.succeed(f"linerate nic apply {card} --queues 2; linerate nic undo {card}")
        assert queues(card) == 4
        status, said = box.execute(f"linerate nic apply {card} --queues 9 2>&1")
        assert status == 2 and "not 9" in said, said

    with subtest(f"{card}: an RSS table that is uneven is dealt out anew, where the card has one"):
        if box.execute(f"ethtool -X {card} weight 1 0 0 0")[0] == 0:
            status, said = box.execute(f"linerate nic verify {card}")
            assert status == 3 and "RSS table" in said, said
            box.succeed(f"linerate nic apply {card}")
            entries = box.succeed(f"ethtool -x {card} | grep '^ *[0-9]*:' | cut -d: -f2").split()
            counts = [entries.count(str(queue)) for queue in range(4)]
            assert max(counts) - min(counts) <= 1, counts
            box.succeed(f"linerate nic undo {card}")
            assert set(box.succeed(f"ethtool -x {card} | grep '^ *[0-9]*:' | cut -d: -f2").split()) == {"0"}
            box.succeed(f"ethtool -X {card} default")
        else:
            print(f"    {card}: no RSS table to be set")


def examined() -> dict[str, dict[str, object]]:
    said = box.execute("linerate --json doctor --profile /etc/linerate/profile.json")[1]
    return {f"{one['rule']} {one['subject']}": one for one in json.loads(said)["findings"]}


with subtest("doctor finds what was changed by hand, says what mends it, and that does"):
    profile = json.loads(box.succeed("cat /etc/linerate/profile.json"))
    drivers = {nic["driver"] for nic in profile["nic"].values()}
    there = box.succeed("cd /sys/class/net; ls -d */device | cut -d/ -f1").split()
    card = next(card for card in there if driver_of(card) in drivers)
    changes = {
        "sysctl net.core.somaxconn": "sysctl -w net.core.somaxconn=128",
        f"offloads {card} rx-gro": f"ethtool -K {card} gro off",
        f"qdisc {card} qdisc": f"tc qdisc replace dev {card} root pfifo_fast",
        f"interface {card}": f"ip link set {card} down",
    }
    before = examined()
    for name, command in changes.items():
        assert name not in before, before[name]
        box.succeed(command)
        found = examined()
        assert name in found, f"{name}: {sorted(found)}"
        mend = str(found[name]["remedy"]).split("  # ")[0]
        box.succeed(mend)
        retry(lambda _, name=name: name not in examined())

with subtest("a service that is gone is critical, and a smaller backlog is not"):
    gate = "linerate doctor --interval 0 --fail-on critical --profile /etc/linerate/profile.json"
    box.wait_until_succeeds(gate)
    # Not links, since systemd listens on its sockets.
    box.succeed("sysctl -w net.core.somaxconn=128", "systemctl restart linerate-files")
    box.wait_until_succeeds(gate)
    assert any(name.startswith("backlog linerate-files") for name in examined()), sorted(examined())
    box.succeed("systemctl stop linerate-files")
    status, said = box.execute(gate)
    assert status == 3 and "critical running: linerate-files.service" in said, said
