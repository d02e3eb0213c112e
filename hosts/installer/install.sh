# install.sh SYSTEM: puts SYSTEM onto the disk of this machine, asks nobody, and turns the machine off.
#
# Of the installer's own EFI partition it reads
#   authorized_keys  who may log in as root afterwards
#   disk             which disk, as /dev/disk/by-id/…, where the machine has several
#   erase            may be empty; without it, a disk that holds anything is left alone
set -euo pipefail
system=$1

fail() {
    echo "error: $*" >&2
    exit 1
}

# What lsblk knows of disks is udev's.
udevadm settle

# The medium that this runs from is not a target.
root=$(findmnt --noheadings --output SOURCE /)
medium=/dev/$(lsblk --noheadings --output PKNAME "$root")
esp=$(lsblk --noheadings --paths --list --output NAME,PARTLABEL "$medium" | awk '$2 == "ESP" { print $1 }')
[[ -n $esp ]] || fail "$medium has no partition named ESP"
files=$(mktemp -d)
mount -o ro "$esp" "$files"

if [[ -s $files/disk ]]; then
    disk=$(realpath --canonicalize-existing "$(tr -d '[:space:]' <"$files/disk")") || fail "disk names none of this machine"
    [[ $disk != "$medium" ]] || fail "disk names the installer itself"
else
    # TYPE disk, no removable one, 8 GiB at least.
    mapfile -t disks < <(lsblk --noheadings --nodeps --paths --bytes --output NAME,TYPE,RM,SIZE |
        awk -v medium="$medium" '$1 != medium && $2 == "disk" && $3 == 0 && $4 >= 8 * 2^30 { print $1 }')
    [[ ${#disks[@]} -eq 1 ]] || fail "this machine has ${#disks[@]} disks (${disks[*]}): name one in the file disk"
    disk=${disks[0]}
fi
if [[ ! -e $files/erase && -n $(wipefs --noheadings "$disk") ]]; then
    fail "$disk holds something: with a file erase beside authorized_keys, it goes"
fi

echo "installing onto $disk"
wipefs --all --quiet "$disk"
sfdisk --quiet --wipe always --label gpt "$disk" <<'TABLE'
size=512MiB, type=U, name=ESP
type=L, name=nixos
TABLE
udevadm settle
mapfile -t parts < <(lsblk --noheadings --paths --list --output NAME,TYPE "$disk" | awk '$2 == "part" { print $1 }')
mkfs.vfat -F 32 -n ESP "${parts[0]}" >/dev/null
mkfs.ext4 -q -L nixos "${parts[1]}"

target=$(mktemp -d)
mount "${parts[1]}" "$target"
mkdir "$target/boot"
mount -o umask=0077 "${parts[0]}" "$target/boot"
# All that is needed is here already.
nixos-install --root "$target" --system "$system" --no-root-password --no-channel-copy --option substituters ""
if [[ -s $files/authorized_keys ]]; then
    cp "$files/authorized_keys" "$target/boot/"
fi
umount --recursive "$target"
sync
echo "installed onto $disk: take the installer out, and turn the machine on"
systemctl poweroff
