#!/usr/bin/env bash
# choose.sh: which disk the installer chooses, and which it never does, by a machine's output of lsblk and wipefs.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{bin,dev}

# `machine` has lsblk's output, in its columns; what is made of a disk starts with its name.
cat >"$work/bin/lsblk" <<'END'
#!/usr/bin/env bash
for last; do :; done
while read -r name type rm ro size filesystem mountpoint; do
    case $last in
        --nodeps) [[ $type == disk || $type == rom || $type == loop ]] || continue ;;
        */dev/*) [[ $name == "$last"* ]] || continue ;;
    esac
    [[ $filesystem != - ]] || filesystem=
    [[ $mountpoint != - ]] || mountpoint=
    echo "NAME=\"$name\" TYPE=\"$type\" RM=\"$rm\" RO=\"$ro\" SIZE=\"$((size << 30))\" FSTYPE=\"$filesystem\" MOUNTPOINT=\"$mountpoint\""
done <"$MACHINE"
END
# A `wipefs` that reports a signature if the disk has a file system or partitions.
cat >"$work/bin/wipefs" <<'END'
#!/usr/bin/env bash
for last; do :; done
[[ $(grep -c "^$last" "$MACHINE") == 1 && $(awk -v disk="$last" '$1 == disk { print $6 }' "$MACHINE") == - ]] || echo "0x1fe dos"
END
chmod 755 "$work/bin/"*
dev=$work/dev

# A machine with the stick that the installer runs from, and the disks that the test case adds.
machine() {
    {
        echo "$dev/sda disk 1 0 16 - -"
        echo "$dev/sda1 part 1 0 1 vfat /tmp/files"
        echo "$dev/sda2 part 1 0 15 ext4 /"
        cat
    } >"$work/machine"
    rm -rf "$dev" "$work/files"
    mkdir "$dev" "$work/files"
    awk '$1 !~ "/open$" { print $1 }' "$work/machine" | xargs touch
}

# takes WHAT DISK, and refuses WHAT WORDS
chosen() {
    MACHINE=$work/machine PATH=$work/bin:$PATH bash hosts/installer/choose.sh "$work/files" "$dev/sda" 2>"$work/errors"
}
takes() {
    local disk
    disk=$(chosen) || { echo "error: $1: refused: $(<"$work/errors")" >&2; exit 1; }
    [[ $disk == "$dev/$2" ]] || { echo "error: $1: takes $disk" >&2; exit 1; }
}
refuses() {
    local disk
    if disk=$(chosen); then
        echo "error: $1: takes $disk" >&2
        exit 1
    fi
    grep -qF "$2" "$work/errors" || { echo "error: $1: says $(<"$work/errors")" >&2; exit 1; }
}
disk() {
    echo "$1" >"$work/files/disk"
}

machine <<<"$dev/nvme0n1 disk 0 0 500 - -"
takes "the only disk, which is empty" nvme0n1
disk "$dev/sda"
refuses "the medium by its name" "names the installer itself"
disk "$dev/sda2"
refuses "a partition of the medium" "is no whole disk but a part"
disk "$dev/sdz"
refuses "a disk that is not there" "there is no $dev/sdz"
ln -s nvme0n1 "$dev/by-id"
disk "$dev/by-id"
takes "the disk by another name" nvme0n1

machine <<END
$dev/nvme0n1 disk 0 0 500 - -
$dev/nvme0n1p1 part 0 0 500 ntfs -
END
refuses "a disk that holds something" "with a file erase"
touch "$work/files/erase"
takes "the same where it may go" nvme0n1

machine <<END
$dev/nvme0n1 disk 0 0 500 - -
$dev/nvme1n1 disk 0 0 500 - -
END
refuses "one of two" "has 2 disks ($dev/nvme0n1 $dev/nvme1n1)"
disk "$dev/nvme1n1"
takes "the one of two that is named" nvme1n1

machine </dev/null
refuses "no disk at all" "has 0 disks"
machine <<END
$dev/sdb disk 1 0 500 - -
$dev/sdc disk 0 0 4 - -
$dev/sdd disk 0 1 500 - -
$dev/sr0 rom 0 0 500 - -
END
refuses "what is removable, small, read-only or no disk" "has 0 disks"
disk "$dev/sdc"
refuses "a small one by its name" "8192 are needed"
disk "$dev/sdd"
refuses "a read-only one by its name" "is read-only"
disk "$dev/sr0"
refuses "what is no disk by its name" "is no whole disk but a rom"
disk "$dev/sdb"
takes "a removable one by its name" sdb

# A disk in use is refused, even with `erase` or by its name.
in_use() {
    machine
    touch "$work/files/erase"
    refuses "$1" "$2"
    disk "$dev/sdb"
    refuses "$1, by its name" "$2"
}
in_use "a mounted partition" "sdb1 is mounted at /srv" <<END
$dev/sdb disk 0 0 500 - -
$dev/sdb1 part 0 0 500 ext4 /srv
END
in_use "swap" "sdb is mounted at [SWAP]" <<<"$dev/sdb disk 0 0 500 swap [SWAP]"
in_use "an LVM member" "part of something larger (LVM2_member)" <<END
$dev/sdb disk 0 0 500 - -
$dev/sdb1 part 0 0 500 LVM2_member -
END
in_use "a RAID member without a table" "part of something larger (linux_raid_member)" <<<"$dev/sdb disk 0 0 500 linux_raid_member -"
in_use "a ZFS member" "part of something larger (zfs_member)" <<END
$dev/sdb disk 0 0 500 - -
$dev/sdb1 part 0 0 500 zfs_member -
END
in_use "what is open for encryption" "sdb1/open (crypt) is made of it" <<END
$dev/sdb disk 0 0 500 - -
$dev/sdb1 part 0 0 500 crypto_LUKS -
$dev/sdb1/open crypt 0 0 500 ext4 -
END
echo "choose: the installer takes the disk that it may, and no other"
