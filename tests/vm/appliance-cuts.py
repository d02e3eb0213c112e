# Faults during the update of an image: a server that stalls, a full EFI partition, and power cuts at any moment. The
# box then boots either the version that ran before or the new one, keeps what is in /var, and the next update works
# without help. LINERATE_CUTS says how often power is cut, LINERATE_SEED when.

import json
import os
import random

served = "/run/updates/served"
versions = "/boot/EFI/Linux"
cuts = int(os.environ.get("LINERATE_CUTS", "2"))
seed = os.environ.get("LINERATE_SEED") or str(random.randrange(10**6))
moments = random.Random(seed)
# What an update writes, in MiB: the version, and before that the same files in /var if they are made from patches. A cut
# may also come when everything is written.
UPDATE_MIB = 540


def running() -> str:
    return box.succeed("sed -n 's/^IMAGE_VERSION=\"*\\([0-9.]*\\)\"*$/\\1/p' /etc/os-release").strip()


def settle() -> None:
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")


def newer() -> str:
    return str(int(running()) + 1)


def serve(what: str) -> None:
    """Makes this the server's directory, with a version that isn't on the disk yet."""
    box.wait_for_unit("boot.mount")
    box.wait_for_file("/dev/disk/by-id/virtio-updates")
    box.succeed(
        f"rm -f {versions}/box_{what}[.+]*efi && sync -f {versions}",
        f"for part in 2 3 4 5; do [[ $(sfdisk --part-label /dev/vda $part) != *_{what} ]] ||"
        " sfdisk --quiet --force --no-reread --no-tell-kernel --part-label /dev/vda $part _empty; done",
        f"mkdir -p /run/updates/all {served}",
        "mountpoint -q /run/updates/all || mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates/all",
        f"systemctl stop updates; umount {served} 2>/dev/null || true",
        f"mount --bind /run/updates/all/{what} {served} && systemctl start updates",
    )
    box.wait_for_open_port(8444)


def files() -> set[str]:
    return set(box.succeed(f"ls -A {versions}").split())


def labels() -> set[str]:
    table = json.loads(box.succeed("sfdisk --json /dev/vda"))["partitiontable"]["partitions"]
    return {part["name"] for part in table}


def written(mib: int, unit: str) -> None:
    """Waits until this much more is on the disk, or the update has ended."""
    sectors = "{ read -ra now </sys/block/vda/stat; echo ${now[6]}; }"
    state = f"$(systemctl show -P ActiveState {unit})"
    box.wait_until_succeeds(f"[[ {state} == activ* ]]", 30)
    box.succeed(
        f"begun=$({sectors}); until (( $({sectors}) - begun >= {mib * 2048} )) ||"
        f" [[ {state} != activ* ]]; do sleep 0.2; done",
        timeout=900,
    )


def nothing_new(target: str) -> None:
    assert not any(name.startswith(f"box_{target}") for name in files()), files()
    assert not {f"store_{target}", f"verity_{target}"} & labels(), labels()
    assert box.succeed("curl -s -o /dev/null --max-time 20 -w '%{http_code}' http://127.0.0.1/nowhere") == "404"


start_all()
settle()
box.succeed("echo kept >/var/lib/outlives && sync")
machine_id = box.succeed("cat /etc/machine-id")

with subtest("a server that says nothing is waited for so long, and no longer"):
    target = newer()
    box.succeed("systemctl stop updates; systemd-run --quiet --unit=silent $(command -v nc) -lk 127.0.0.1 8444")
    box.wait_until_succeeds("ss -Hltn | grep -q :8444")
    status, said = box.execute("linerate update check --timeout 10 2>&1")
    assert status == 1 and "took longer than 10 s" in said, (status, said)
    box.succeed("systemctl stop silent")

with subtest("nor is one that stalls on the way, and what it sent is nothing"):
    serve(target)
    box.succeed("systemd-run --quiet --unit=stalled -E PATH=$PATH $(command -v linerate) update apply --whole --timeout 60")
    written(20, "stalled")
    box.succeed("systemctl kill --signal STOP updates")
    box.wait_until_succeeds("systemctl show -P ActiveState stalled | grep -qx failed", 300)
    assert "took longer than 60 s" in box.succeed("journalctl --no-pager -o cat -u stalled")
    box.wait_until_fails("pgrep systemd-pull", 30)
    box.succeed("systemctl kill --signal CONT updates")
    nothing_new(target)

for number in range(cuts):
    mib = moments.randrange(UPDATE_MIB)
    before = running()
    with subtest(f"power is cut once {mib} MiB of an update are written, {number + 1} of {cuts} (LINERATE_SEED={seed})"):
        target = newer()
        serve(target)
        box.succeed("systemctl start --no-block linerate-update")
        try:
            written(mib, "linerate-update")
        except Exception:
            # The update was complete before the cut, and the box has started to boot.
            pass
        box.crash()
        box.start()
        # The update may have been complete, in which case the new version runs.
        assert running() in (before, target), running()
        if running() == "3":
            # This version is unhealthy: the box falls back after its second try.
            box.wait_for_shutdown()
            box.start()
            box.wait_for_shutdown()
            box.start()
            assert running() == before
        elif running() == target:
            box.wait_for_unit("systemd-bless-boot.service")
        assert box.succeed("cat /var/lib/outlives").strip() == "kept"
        assert box.succeed("cat /etc/machine-id") == machine_id

with subtest("an update after all that needs nobody's help, and leaves nothing else behind"):
    settle()
    now, target = running(), newer()
    serve(target)
    said = json.loads(box.succeed("linerate --json update apply", timeout=900))
    said.pop("patched", None)
    assert said == {"next": target}, said
    assert files() == {f"box_{now}.efi", f"box_{target}+2-0.efi"}, files()
    assert {f"store_{target}", f"verity_{target}"} <= labels(), labels()

with subtest("a boot file that finds no room is refused, and is written once there is some"):
    box.succeed(f"rm {versions}/box_{target}+2-0.efi && dd if=/dev/zero of=/boot/full bs=1M 2>/dev/null || true")
    box.succeed(f"truncate -s -8M /boot/full && sync -f {versions}")
    status, said = box.execute("linerate update apply 2>&1", 900)
    assert status == 1, (status, said)
    assert files() == {f"box_{now}.efi"}, files()
    box.succeed("rm /boot/full")
    said = json.loads(box.succeed("linerate --json update apply", timeout=900))
    said.pop("patched", None)
    assert said == {"next": target}, said
    assert files() == {f"box_{now}.efi", f"box_{target}+2-0.efi"}, files()
