# The host as an image: it boots from its firmware on, lets nobody write where nothing is to be written, and is updated to
# versions that are signed and healthy, and to no others. It has a server of updates in itself (tests/appliance.nix).

import json

served = "/run/updates/served"
versions = "/boot/EFI/Linux"


def settle(version: str) -> None:
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")
    assert f"IMAGE_VERSION={version}" in box.succeed("cat /etc/os-release").replace('"', ""), version


def serve(what: str) -> None:
    """As the server's directory."""
    box.succeed(
        "mkdir -p /run/updates/all",
        "mountpoint -q /run/updates/all || mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates/all",
        f"systemctl stop updates; mkdir -p {served}; umount {served} 2>/dev/null || true",
        f"mount --bind /run/updates/all/{what} {served} && systemctl start updates",
    )
    box.wait_for_open_port(8444)


def update(arguments: str) -> dict:
    return json.loads(box.succeed(f"linerate --json update {arguments}", timeout=900))


def refused(arguments: str, status: int = 1) -> str:
    ended, said = box.execute(f"linerate update {arguments} 2>&1", 900)
    assert ended == status, (ended, said)
    return said


def files() -> set[str]:
    return set(box.succeed(f"ls {versions}").split())


def labels() -> list[str]:
    table = json.loads(box.succeed("sfdisk --json /dev/vda"))["partitiontable"]["partitions"]
    return [part["name"] for part in table]


def tried(version: str) -> None:
    """As if it had been tried once: that each is tried twice is seen of generations."""
    box.succeed(f"cd {versions} && mv box_{version}+2-0.efi box_{version}+1-1.efi && sync -f .")


def boot_into(times: int) -> None:
    """Boots again, and as often as it does so by itself."""
    box.shutdown()
    box.start()
    for _ in range(times):
        box.wait_for_shutdown()
        box.start()


start_all()

with subtest("the box counts as healthy, and no unit has failed"):
    settle("1")
    assert box.succeed("systemctl list-units --failed --plain --no-legend") == ""
    box.wait_until_succeeds("systemctl is-system-running | grep -qx running", 120)

with subtest("services answer"):
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/nowhere") == "404"
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"

with subtest("nothing but /var, /tmp and /run is written"):
    for place in ("/", "/etc", "/nix/store", "/root", "/usr"):
        box.fail(f"touch {place}/x")
    box.succeed("touch /var/x /tmp/x /run/x && rm /var/x /tmp/x /run/x")
    assert box.succeed("findmnt -no SOURCE,FSTYPE /nix/store").split() == ["/dev/mapper/usr", "erofs"]

with subtest("the disk has a second slot, with nothing in it, and all that is left is /var's"):
    assert labels() == ["esp", "verity_1", "store_1", "_empty", "_empty", "var"], labels()
    assert int(box.succeed("df --output=size -B 1 /var | tail -n 1")) > 10**9
    box.succeed("echo kept >/var/lib/kept && sync")
    machine_id = box.succeed("cat /etc/machine-id")

with subtest("a manifest that somebody else signed, or nobody, is refused, and nothing is written"):
    for wrong in ("other", "unsigned"):
        serve(wrong)
        refused("check")
        refused("apply")
    assert labels()[3:5] == ["_empty", "_empty"], labels()
    assert files() == {"box_1.efi"}, files()

with subtest("what the manifest does not say is refused, and boots never"):
    serve("lies")
    refused("apply")
    assert files() == {"box_1.efi"}, files()

with subtest("versions that it must not go to are refused"):
    refused("apply 0.9", 2)
    refused("apply 1", 2)
    refused("rollback")

with subtest("a version that is signed is written into the other slot, and boots on trial"):
    serve("2")
    assert update("check") == {"running": "1", "available": "2"}, update("check")
    assert update("apply") == {"next": "2"}
    assert files() == {"box_1.efi", "box_2+2-0.efi"}, files()
    assert labels()[1:5] == ["verity_1", "store_1", "verity_2", "store_2"], labels()
    boot_into(0)
    settle("2")
    box.wait_for_unit("systemd-bless-boot.service")
    assert files() == {"box_1.efi", "box_2.efi"}, files()

with subtest("/var and who the machine is outlive an update"):
    assert box.succeed("cat /var/lib/kept").strip() == "kept"
    assert box.succeed("cat /etc/machine-id") == machine_id

with subtest("a version that is ill gives the box back by itself"):
    serve("3")
    assert update("apply") == {"next": "3"}
    tried("3")
    boot_into(1)
    settle("2")
    assert files() == {"box_2.efi", "box_3+0-2.efi"}, files()
    assert "this version is ill" in box.succeed("journalctl -b -1 --no-pager -o cat -u linerate-health")
    serve("3")
    assert update("check")["available"] is None

with subtest("a store of which a bit is another does not boot, and gives the box back"):
    assert update("apply 3") == {"next": "3"}
    tried("3")
    # Of the file system's own block, which is read first.
    box.succeed(
        "device=/dev/disk/by-partlabel/store_3; blockdev --setrw $(readlink -f $device)"
        " && printf x | dd of=$device bs=1 seek=1100 conv=notrunc,fsync status=none"
    )
    boot_into(1)
    settle("2")
    assert files() == {"box_2.efi", "box_3+0-2.efi"}, files()
    assert box.succeed("cat /var/lib/kept").strip() == "kept"
