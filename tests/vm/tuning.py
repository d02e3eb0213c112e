# The kernel and the network cards are as the host declares, and `linerate doctor` sees what isn't.

import json

start_all()
box.wait_for_unit("multi-user.target")
profile = json.loads(box.succeed("cat /etc/linerate/profile.json"))

# ethtool's names for the features that a profile names as the kernel does.
FEATURES = {
    "rx-gro": "generic-receive-offload",
    "rx-lro": "large-receive-offload",
    "tx-tcp-segmentation": "tx-tcp-segmentation",
}


def cards_of(driver: str) -> list[str]:
    found = box.succeed(
        "for card in /sys/class/net/*; do"
        f" [ \"$(basename $(readlink $card/device/driver) 2>/dev/null)\" != {driver} ] || basename $card; done"
    )
    return found.split()


with subtest("the kernel is set as declared"):
    declared = [line.split("=", 1) for line in box.succeed("cat /etc/sysctl.d/60-nixos.conf").splitlines() if "=" in line]
    assert len(declared) > 15
    for name, value in declared:
        found = box.succeed(f"sysctl -n {name}").split()
        # kernel.printk may be given in part.
        assert found[: len(value.split())] == value.split(), f"{name}: {found} instead of {value}"
    for name, value in profile["kernel"]["sysctl"].items():
        assert box.succeed(f"sysctl -n {name}").split() == str(value).split(), name

with subtest("what is the kernel's own default is left alone"):
    for name, value in {"tcp_syncookies": "1", "tcp_tw_reuse": "2", "tcp_timestamps": "1", "tcp_sack": "1"}.items():
        assert box.succeed(f"cat /proc/sys/net/ipv4/{name}").strip() == value, name

with subtest("cards are as their .link files say"):
    for card in profile["nic"].values():
        names = cards_of(card["driver"])
        assert names, f"no card of {card['driver']}"
        for name in names:
            link = box.succeed(f"udevadm info -q property --property=ID_NET_LINK_FILE --value /sys/class/net/{name}")
            assert link.startswith("/etc/systemd/network/10-"), link
            features = box.succeed(f"ethtool -k {name}")
            for feature, on in card["offloads"].items():
                assert f"{FEATURES[feature]}: {'on' if on else 'off'}" in features, f"{feature}\n{features}"
            kinds = {each["kind"] for each in json.loads(box.succeed(f"tc -j qdisc show dev {name}"))}
            assert kinds - {"mq"} == {card["qdisc"]}, kinds

with subtest("a listener's backlog is the declared one"):
    for unit in profile["services"].values():
        for address in unit["listen"]:
            port = address.rsplit(":", 1)[1]
            waiting = box.succeed(f"ss -Hltn 'sport = :{port}'").split()
            assert waiting[2] == str(unit["backlog"]), waiting


def drifted() -> list[str]:
    """Returns the kernel settings that doctor reports. It exits with 3 if it finds anything."""
    status, said = box.execute("linerate --json doctor --profile /etc/linerate/profile.json")
    assert status in (0, 3), f"{status}: {said}"
    subjects = [finding["subject"] for finding in json.loads(said)["findings"]]
    return [subject for subject in subjects if subject.startswith("net.")]


with subtest("doctor finds a value that was changed by hand, and no other"):
    assert drifted() == [], drifted()
    box.succeed("sysctl -w net.core.somaxconn=128")
    assert drifted() == ["net.core.somaxconn"], drifted()
    box.succeed("sysctl -w net.core.somaxconn=16384")
    assert drifted() == [], drifted()
