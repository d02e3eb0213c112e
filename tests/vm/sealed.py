# The host as an image on a machine with Secure Boot and a TPM: the firmware enrols its keys, and starts nothing else
# from then on; /var is only opened on that machine, for a signed version, or with the recovery key.

import json
import re
import uuid

served = "/run/updates/served"
versions = "/boot/EFI/Linux"
recovery_key = "/run/linerate-recovery-key"
var = "/dev/disk/by-partlabel/var"
# What the boot loader and the firmware say about a file without a signature they know.
refused = "(?i)access denied|security violation"
asked = "(?s)/var does not open.*Please enter .* for disk var"


def settle(version: str) -> None:
    """Waits until this version runs, and is healthy."""
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")
    said = box.succeed("grep ^IMAGE_VERSION= /etc/os-release").strip().replace('"', "")
    assert said == f"IMAGE_VERSION={version}", said
    assert box.succeed("findmnt -no SOURCE /var").strip() == "/dev/mapper/var"


def kept() -> str:
    return box.succeed("cat /var/lib/kept").strip()


def boots(version: str) -> None:
    """Boots by itself, from its disk as it is now."""
    box.shutdown()
    box.start()
    settle(version)
    assert kept() == secret, kept()


def opened_by_hand(version: str) -> None:
    """Boots once somebody types the recovery key at the console."""
    box.start()
    box.wait_for_console_text(asked)
    box.send_console(f"{key}\n")
    settle(version)
    assert kept() == secret, kept()


def variable(name: str) -> int:
    """Returns a byte of a firmware variable, after four of attributes."""
    path = f"/sys/firmware/efi/efivars/{name}-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    return int(box.succeed(f"od -An -tu1 -j4 -N1 {path}"))


def found(**changes: object) -> list[str]:
    """Returns what doctor finds about the image, with the host's profile except for these."""
    profile = json.loads(box.succeed("cat /etc/linerate/profile.json"))["image"] | changes
    box.succeed(f"echo '{json.dumps({'image': profile})}' >/run/profile.json")
    # It exits with 3 if it has found something.
    said = json.loads(box.execute("linerate --json doctor --profile /run/profile.json")[1])
    assert "image" not in said["idle"], said
    return [f"{one['subject']}: {one['found']}" for one in said["findings"] if one["rule"] == "image"]


def flip(path: str, offset: int) -> None:
    """Flips one bit of a file."""
    box.succeed(
        f"byte=$(od -An -tu1 -j{offset} -N1 '{path}');"
        " printf \"\\\\$(printf %03o $((byte ^ 1)))\""
        f" | dd of='{path}' bs=1 seek={offset} conv=notrunc,fsync status=none && sync -f {versions}"
    )


with subtest("a machine in setup mode takes the image's keys, and boots again by them"):
    box.start()
    box.wait_for_end()
    box.start()
    settle("1")
    assert (variable("SecureBoot"), variable("SetupMode")) == (1, 0)
    said = box.succeed("bootctl status --no-pager 2>&1")
    assert re.search(r"Secure Boot: enabled \(user\)", said), said

with subtest("doctor finds it as it has to be, and would find what is not encrypted"):
    assert found() == [], found()
    assert found(encrypted=["/var", "/boot"]) == ["/boot: /dev/vda1"], found(encrypted=["/var", "/boot"])

with subtest("the first boot has sealed /var to this machine, and hands out a recovery key to root"):
    header = json.loads(box.succeed(f"cryptsetup luksDump --dump-json-metadata {var}"))
    [token] = [token for token in header["tokens"].values() if token["type"] == "systemd-tpm2"]
    # PCR 7: who has signed the boot loader. PCR 11: the boot file is signed for it.
    assert token["tpm2-pcrs"] == [7] and token["tpm2_pubkey_pcrs"] == [11], token
    assert box.succeed(f"stat -c '%a %U' {recovery_key}").strip() == "600 root"
    key = box.succeed(f"cat {recovery_key}")
    assert re.fullmatch("([0-9a-f]{8}-){7}[0-9a-f]{8}", key), len(key)

with subtest("who has the disk reads nothing of what is written there"):
    secret, public = (f"written-{uuid.uuid4()}" for _ in range(2))
    box.succeed(f"echo {secret} >/var/lib/kept && echo {public} >/boot/public && sync")
    assert box.disk_has(public)
    assert not box.disk_has(secret) and not box.disk_has(key)

with subtest("an update is another boot file, and opens /var too, with nobody's help"):
    box.wait_for_file("/dev/disk/by-id/virtio-updates")
    box.succeed(
        f"mkdir -p /run/updates/all {served}",
        "mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates/all",
        f"mount --bind /run/updates/all/2 {served} && systemctl start updates",
    )
    box.wait_for_open_port(8444)
    said = json.loads(box.succeed("linerate --json update apply", timeout=900))
    said.pop("patched", None)
    assert said == {"next": "2"}, said
    boots("2")
    box.wait_for_unit("systemd-bless-boot.service")
    box.fail(f"test -e {recovery_key}")

with subtest("the firmware refuses boot files that somebody else signed, that nobody did, and of which a bit is another"):
    box.wait_for_file("/dev/disk/by-id/virtio-updates")
    box.succeed(
        "mkdir -p /run/updates && mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates",
        f"cp /run/updates/other/boot.efi {versions}/box_9+1-0.efi",
        f"cp /run/updates/unsigned/boot.efi {versions}/box_8+1-0.efi",
        f"cp {versions}/box_2.efi {versions}/box_7+1-0.efi",
    )
    flip(f"{versions}/box_7+1-0.efi", 2**20)
    box.shutdown()
    for _ in range(3):
        box.start()
        box.wait_for_console_text(refused)
        box.crash()

with subtest("another machine's TPM opens nothing: the console says so, and the box boots again if nobody has the key"):
    box.forget_tpm()
    box.start()
    box.wait_for_console_text(asked)
    box.wait_for_end()

with subtest("the recovery key opens it, and what was refused gave the box back to the version before"):
    opened_by_hand("2")
    expected = {"box_1.efi", "box_2.efi"} | {f"box_{version}+0-1.efi" for version in (7, 8, 9)}
    assert set(box.succeed(f"ls {versions}").split()) == expected, box.succeed(f"ls {versions}")

with subtest("/var is sealed anew to the machine that it is in now"):
    box.succeed(
        f"umask 077; printf %s {key} >/run/key",
        # Separately, since systemd-cryptenroll mistakes a slot for another TPM with the same policy for this one's, and
        # does nothing.
        f"systemd-cryptenroll --wipe-slot=tpm2 {var}",
        f"systemd-cryptenroll --unlock-key-file=/run/key --tpm2-device=auto --tpm2-pcrs=7 {var}",
        "rm /run/key",
    )
    boots("2")

with subtest("with Secure Boot off the TPM gives nothing, and doctor says that it is off"):
    box.succeed("rm -r /boot/loader/keys && sync -f /boot")
    box.shutdown()
    box.forget_variables()
    opened_by_hand("2")
    assert variable("SecureBoot") == 0
    assert found() == ["Secure Boot: off"], found()
