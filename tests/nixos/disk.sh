#!/usr/bin/env bash
# disk.sh SYSTEM DISK: a disk that boots a built system from its firmware on, as nixos-install would leave it: an EFI system
# partition that the system's own program for the boot loader wrote, and a root with the closure and Nix's database of it.
#
# Needs root, for the chroot that program runs in; what it mounts is seen by nobody else, and gone with it.
set -euo pipefail
if [[ ${DISK_SH_ALONE:-} != "$$" ]]; then
    DISK_SH_ALONE=$$ exec unshare --mount --propagation private "$0" "$@"
fi
system=$(readlink -f "$1") disk=$2

# Beside the store, where files may have a second name in place of a copy.
work=$(mktemp -d /nix/var/nix/linerate-disk-XXXXXX)
cleanup() {
    umount --recursive --quiet "$work"/root/{etc,boot,run,dev,sys,proc} 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
root=$work/root
mkdir -p "$root"/{boot,dev,etc,nix/store,nix/var/nix/profiles,proc,root,run,sys,tmp,var}
chmod 1777 "$root/tmp"
chmod 700 "$root/root"

mapfile -t closure < <(nix-store --query --requisites "$system")
cp -al "${closure[@]}" "$root/nix/store/"
nix-store --dump-db "${closure[@]}" >"$work/registration"
NIX_STATE_DIR=$root/nix/var/nix nix-store --load-db <"$work/registration"
ln -s system-1-link "$root/nix/var/nix/profiles/system"
ln -s "$system" "$root/nix/var/nix/profiles/system-1-link"
touch "$root/etc/NIXOS"

# The partition as a directory.
for directory in proc sys dev; do mount --rbind "/$directory" "$root/$directory"; done
for directory in run boot; do mount -t tmpfs -o mode=0700 tmpfs "$root/$directory"; done
mount --bind "$(readlink -f "$system/etc")" "$root/etc"
ln -s "$system" "$root/run/current-system"
# Debian's bootctl looks for the loader there; once it has booted, debian-paths.nix sees to it.
mkdir -p "$root/usr/lib/systemd"
cp -r "$(readlink -f "$system/systemd")/lib/systemd/boot" "$root/usr/lib/systemd/boot"
env -i PATH="$PATH" HOME=/root SYSTEMD_RELAX_ESP_CHECKS=1 NIXOS_INSTALL_BOOTLOADER=1 chroot "$root" \
    "$system/bin/switch-to-configuration" boot >"$work/said" 2>&1 || failed=1
# It ends with 0 where that program has failed.
if [[ -n ${failed:-} || -z $(ls "$root/boot/loader/entries") ]]; then
    cat "$work/said" >&2
    echo "error: no boot loader could be written for $system" >&2
    exit 1
fi
# Each machine makes its own.
rm -f "$root/boot/loader/random-seed"

esp=$work/esp
truncate -s 512M "$esp"
mkfs.vfat -F 32 -n ESP "$esp" >/dev/null
mcopy -s -i "$esp" "$root"/boot/* ::
umount --recursive "$root"/{etc,boot,run,dev,sys,proc}
size=$(($(du -sm "$root" | cut -f 1) * 5 / 4 + 256))
mke2fs -q -t ext4 -L nixos -d "$root" "$work/ext4" "${size}M" >/dev/null

rm -f "$disk"
truncate -s $((1 + 512 + size + 1))M "$disk"
printf 'label: gpt\nstart=1MiB, size=512MiB, type=uefi, name=ESP\nstart=513MiB, size=%dMiB, type=%s, name=root\n' \
    "$size" 4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709 | sfdisk --quiet "$disk"
dd if="$esp" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
dd if="$work/ext4" of="$disk" bs=1M seek=513 conv=notrunc,sparse status=none
echo "nixos: $disk has $system, with a root of $size MiB"
