# The host as an image updates to signed and intact versions, and to no others. If a version isn't healthy or doesn't
# start, the box falls back to the previous one. The update server is in the box itself (tests/appliance.nix).

import json

served = "/run/updates/served"
versions = "/boot/EFI/Linux"
counted = "/run/counted"


def settle(version: str) -> None:
    """Waits until this version runs, and is healthy."""
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")
    runs(version)


def runs(version: str) -> None:
    said = box.succeed("grep ^IMAGE_VERSION= /etc/os-release").strip().replace('"', "")
    assert said == f"IMAGE_VERSION={version}", said


def serve(what: str) -> None:
    """Makes this the server's directory."""
    box.wait_for_file("/dev/disk/by-id/virtio-updates")
    box.succeed(
        f"mkdir -p /run/updates/all {served}",
        "mountpoint -q /run/updates/all || mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates/all",
        f"systemctl stop updates; umount {served} 2>/dev/null || true",
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


def slot() -> str:
    """Returns the start of the empty slot's partitions."""
    return box.succeed("for part in 4 5; do head -c 1M /dev/vda$part | sha256sum; done")


def tried(version: str) -> None:
    """Sets a version's counter as if it had been tried once: another test shows that generations are tried twice."""
    box.succeed(f"cd {versions} && mv box_{version}+2-0.efi box_{version}+1-1.efi && sync -f .")


def gives_back(begins: bool) -> None:
    """Boots what is on trial, and then what follows it, without any intervention."""
    box.shutdown()
    box.start()
    if begins:
        box.wait_for_shutdown()
    else:
        box.wait_for_end()
    box.start()
    runs("2")
    box.wait_for_unit("boot.mount")
    assert files() == {"box_2.efi", "box_3+0-2.efi"}, files()
    assert box.succeed("cat /var/lib/kept").strip() == "kept"


def answered() -> str:
    return box.succeed("curl -s -o /dev/null --max-time 20 -w '%{http_code} %{redirect_url}' http://127.0.0.1/kept")


start_all()
settle("1")

with subtest("what is to be kept is stored"):
    box.succeed(
        "runuser -u linerate-links -- linerate-links add https://example.com/kept --code kept"
        " --database /var/lib/linerate-links/links.db",
        "echo kept >/var/lib/kept && sync",
    )
    assert answered() == "307 https://example.com/kept", answered()
    machine_id = box.succeed("cat /etc/machine-id")

with subtest("a manifest that somebody else signed, or nobody, is refused, and nothing is written"):
    before = slot()
    for wrong in ("other", "unsigned"):
        serve(wrong)
        refused("check")
        refused("apply 2")
    assert labels()[3:5] == ["_empty", "_empty"], labels()
    assert slot() == before
    assert files() == {"box_1.efi"}, files()

with subtest("what is not as the manifest says is refused, and boots never"):
    serve("lies")
    refused("apply")
    assert labels()[3:5] == ["_empty", "_empty"], labels()
    assert files() == {"box_1.efi"}, files()

with subtest("versions that it must not go to are refused"):
    refused("apply 0.9", 2)
    refused("apply 1", 2)
    refused("rollback")

with subtest("a version that is signed is made from patches and written, while the services serve"):
    serve("2")
    assert update("check") == {"running": "1", "available": "2"}, update("check")
    box.succeed(
        "systemd-run --quiet --unit=client -E PATH=$PATH bash -c 'while true; do"
        f" curl -s -o /dev/null --max-time 20 -w \"%{{http_code}}\\n\" http://127.0.0.1/kept >>{counted} || true; done'"
    )
    said = update("apply")
    print(said)
    patched = said.pop("patched")
    assert said == {"next": "2"} and patched["downloaded"] * 4 < patched["whole"], (said, patched)
    assert box.succeed("ls -A /var/lib/linerate-update") == ""
    box.succeed("systemctl stop client")
    answers = box.succeed(f"cat {counted}").split()
    assert len(answers) > 10 and set(answers) == {"307"}, answers
    assert files() == {"box_1.efi", "box_2+2-0.efi"}, files()
    assert labels()[1:5] == ["verity_1", "store_1", "verity_2", "store_2"], labels()

with subtest("it boots on trial, is healthy and stays"):
    box.shutdown()
    box.start()
    settle("2")
    box.wait_for_unit("systemd-bless-boot.service")
    assert files() == {"box_1.efi", "box_2.efi"}, files()

with subtest("/var and who the machine is outlive an update"):
    assert box.succeed("cat /var/lib/kept").strip() == "kept"
    assert box.succeed("cat /etc/machine-id") == machine_id
    assert answered() == "307 https://example.com/kept", answered()

with subtest("a store of which a bit is another does not boot, and gives the box back"):
    # There are no patches from the second version to the third one.
    serve("3")
    assert update("apply") == {"next": "3"}
    assert labels()[1:5] == ["verity_3", "store_3", "verity_2", "store_2"], labels()
    tried("3")
    # In the file system's own block, which is read first; udev may not know the partition's name yet.
    flip = (
        "device=/dev/vda3; blockdev --setrw $device;"
        " byte=$(od -An -tu1 -j1100 -N1 $device);"
        " printf \"\\\\$(printf %03o $((byte ^ 1)))\" | dd of=$device bs=1 seek=1100 conv=notrunc,fsync status=none"
    )
    box.succeed(flip)
    gives_back(begins=False)

with subtest("a version that has failed is not taken again, until it is asked for by name"):
    serve("3")
    assert update("check")["available"] is None
    assert update("apply") == {"next": None}
    box.succeed(flip)
    assert update("apply 3") == {"next": "3"}

with subtest("a version whose kernel finds nothing to start gives the box back"):
    tried("3")
    there, wrong = "mount.usr=fstab", "rdinit=/nowhere"
    box.succeed(f"sed -i 's,{there},{wrong},' {versions}/box_3+1-1.efi && sync -f {versions}")
    gives_back(begins=False)

with subtest("a version that is ill gives the box back"):
    assert update("apply 3") == {"next": "3"}
    tried("3")
    box.succeed(f"sed -i 's,{wrong},{there},' {versions}/box_3+1-1.efi && sync -f {versions}")
    gives_back(begins=True)
    assert "this version is ill" in box.succeed("journalctl -b -1 --no-pager -o cat -u linerate-health")
    settle("2")
