# install.sh SYSTEM [ROOT]: installs SYSTEM onto this machine's disk without asking, and turns the machine off. ROOT is
# the partition that the installer runs from, by default that of /; tests name another.
#
# From the installer's own EFI partition it reads
#   authorized_keys  who may log in as root afterwards
#   disk, erase      which disk, and whether its content may be erased: see choose.sh beside this
#
# $espLabel, $espMiB and $rootLabel are from disk-layout.json of modules/appliance.
set -euo pipefail
system=$1

fail() {
    echo "error: $*" >&2
    exit 1
}

# lsblk gets its information about disks from udev.
udevadm settle

# The medium that this runs from can't be the target.
root=${2:-$(findmnt --noheadings --output SOURCE /)}
medium=/dev/$(lsblk --noheadings --nodeps --output PKNAME "$root")
esp=$(lsblk --noheadings --paths --list --output NAME,PARTLABEL "$medium" | awk -v "label=$espLabel" '$2 == label { print $1 }')
[[ -n $esp ]] || fail "$medium has no partition named $espLabel"
files=$(mktemp -d)
mount -o ro "$esp" "$files"

disk=$(linerate-choose "$files" "$medium")

# The box finds its file systems by these labels, and with a second one would boot from either. In tests, / is on yet
# another disk.
mine=$(lsblk --noheadings --paths --list --output NAME "$disk" "$medium" "$(findmnt --noheadings --output SOURCE /)")
while read -r name label; do
    if [[ ($label == "$rootLabel" || $label == "$espLabel") && $'\n'$mine$'\n' != *$'\n'$name$'\n'* ]]; then
        fail "$name has the label $label, by which the box would find its own: relabel it, or take its disk out"
    fi
done < <(lsblk --noheadings --paths --list --output NAME,LABEL)

echo "installing onto $disk"
wipefs --all --quiet "$disk"
sfdisk --quiet --wipe always --label gpt "$disk" <<TABLE
size=${espMiB}MiB, type=U, name=$espLabel
type=L, name=$rootLabel
TABLE
udevadm settle
mapfile -t parts < <(lsblk --noheadings --paths --list --output NAME,TYPE "$disk" | awk '$2 == "part" { print $1 }')
mkfs.vfat -F 32 -n "$espLabel" "${parts[0]}" >/dev/null
mkfs.ext4 -q -L "$rootLabel" "${parts[1]}"

target=$(mktemp -d)
mount "${parts[1]}" "$target"
mkdir "$target/boot"
mount -o umask=0077 "${parts[0]}" "$target/boot"
# Everything needed is already here.
nixos-install --root "$target" --system "$system" --no-root-password --no-channel-copy --no-bootloader \
    --option substituters ""
linerate-boot-partition "$target/boot"
if [[ -s $files/authorized_keys ]]; then
    cp "$files/authorized_keys" "$target/boot/"
fi
umount --recursive "$target"
sync
echo "installed onto $disk: take the installer out, and turn the machine on"
systemctl poweroff
