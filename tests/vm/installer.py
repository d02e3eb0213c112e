# The installer on a machine with several disks: which of them it writes to, and that it writes to no other.

start_all()
box.wait_for_unit("multi-user.target")


def disk(mib: int) -> str:
    found = box.succeed(f"lsblk --noheadings --nodeps --bytes --output PATH,SIZE | grep -w {mib << 20}").split()
    assert len(found) == 2, found
    return found[0]


medium, one, other, small = disk(9216), disk(10240), disk(11264), disk(1024)
kept = "/root/sums"


def install(*files: str) -> str:
    """Returns the installer's message, with these files beside the key; it must not have written anything."""
    box.succeed(f"rm -rf /mnt; mkdir /mnt; mount {medium}1 /mnt; rm -f /mnt/disk /mnt/erase")
    for file in files:
        name, _, text = file.partition("=")
        box.succeed(f"echo '{text}' > /mnt/{name}")
    box.succeed("umount /mnt")
    status, said = box.execute(f"linerate-install /nix/store/system {medium}2 2>&1")
    assert status == 1, said
    sums = box.succeed(f"for disk in {one} {other} {small}; do head -c 1M $disk | sha256sum; done")
    assert sums == box.succeed(f"cat {kept}"), said
    box.succeed("umount $(findmnt --raw --noheadings --output TARGET | grep /tmp/tmp)")
    return said


with subtest("disks as somebody may have them"):
    box.succeed(
        f"printf 'size=64MiB, type=U, name=ESP\ntype=L\n' | sfdisk --quiet --label gpt {medium}",
        f"udevadm settle; mkfs.vfat -n STICK {medium}1 >/dev/null; mkfs.ext4 -q {medium}2",
        f"mkfs.ext4 -q {one}; mkdir -p /mnt; mount {one} /mnt; echo diary > /mnt/diary; umount /mnt",
        f"mkswap -q {other}; mkfs.ext4 -q {small}; udevadm settle; sync",
        f"mount {medium}1 /mnt; echo ssh-ed25519 AAAA > /mnt/authorized_keys; umount /mnt",
        f"for disk in {one} {other} {small}; do head -c 1M $disk | sha256sum; done > {kept}",
    )
    # NixOS's part is to install a system there, and the host defines how it boots.
    box.succeed(
        "mkdir -p /usr/local/bin; cat > /usr/local/bin/nixos-install <<'END'\n#!/bin/sh\n"
        'echo "$@" > "$2/installed"\nEND\n'
        "cat > /usr/local/bin/linerate-boot-partition <<'END'\n#!/bin/sh\n"
        'touch "$1/boots"\nEND\n'
        "chmod 755 /usr/local/bin/nixos-install /usr/local/bin/linerate-boot-partition"
    )

with subtest("of several none is taken by chance"):
    assert "name one in the file disk" in install("erase="), "several"

with subtest("the medium, and a partition of it, are no targets"):
    assert "names the installer itself" in install("erase=", f"disk={medium}")
    assert "is no whole disk but a part" in install("erase=", f"disk={medium}2")

with subtest("a disk that is too small, or in use, is none"):
    assert "8192 are needed" in install("erase=", f"disk={small}")
    box.succeed(f"swapon {other}")
    assert "is mounted at [SWAP]" in install("erase=", f"disk={other}")
    box.succeed(f"swapoff {other}")

with subtest("a disk that holds something is left alone"):
    assert "with a file erase" in install(f"disk={one}")
    box.succeed(f"mount {one} /mnt; grep diary /mnt/diary; umount /mnt")

with subtest("no other disk has the labels by which the box finds its own"):
    sums = f"for disk in {one} {other} {small}; do head -c 1M $disk | sha256sum; done > {kept}"
    box.succeed(f"e2label {small} nixos; udevadm trigger --settle {small}; {sums}")
    assert f"{small} has the label nixos" in install("erase=", f"disk={one}")
    box.succeed(f"e2label {small} ''; udevadm trigger --settle {small}; {sums}")

with subtest("where it may go, that disk is installed onto, and the machine is off"):
    box.succeed(f"mount {medium}1 /mnt; touch /mnt/erase; echo {one} > /mnt/disk; umount /mnt; sync")
    box.execute(f"PATH=$PATH:/usr/local/bin systemd-run -E PATH -u install linerate-install /nix/store/system {medium}2")
    box.wait_for_shutdown()
    box.start()
    box.wait_for_unit("multi-user.target")
    found = box.succeed(f"lsblk --noheadings --list --output TYPE,FSTYPE,LABEL,PARTLABEL {one}").split("\n")
    assert [line.split() for line in found if line] == [
        ["disk"],
        ["part", "vfat", "ESP", "ESP"],
        ["part", "ext4", "nixos", "nixos"],
    ], found
    box.succeed(f"mount {one}2 /mnt")
    said = box.succeed("cat /mnt/installed")
    assert "--system /nix/store/system " in said and "--no-root-password" in said, said
    box.succeed("umount /mnt", f"mount {one}1 /mnt")
    box.succeed("test -e /mnt/boots")
    assert box.succeed("cat /mnt/authorized_keys") == "ssh-ed25519 AAAA\n"
    box.succeed("umount /mnt")
    rest = box.succeed(f"for disk in {other} {small}; do head -c 1M $disk | sha256sum; done")
    assert rest == box.succeed(f"tail -n 2 {kept}"), rest
