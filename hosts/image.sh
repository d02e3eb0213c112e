# image.sh: writes $out/nixos.img, a disk that boots $toplevel from the machine's firmware, as nixos-install would leave
# it: an EFI system partition with systemd-boot and an entry for the first generation, and a root with the closure and
# its Nix database. It needs no virtual machine and no user but the builder's: fakeroot makes root the owner of all
# files, and tools write into files.
#
# $closure is its closureInfo, $bootPartition is boot-partition.sh, $label is the root's label, and $espLabel and
# $espMiB are the EFI system partition's label and size, from disk-layout.json of modules/appliance.
set -euo pipefail
shopt -s inherit_errexit

# An identifier for each part, so that the same system makes the same disk.
identifier() {
    sha256sum <<<"$toplevel $1" | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/'
}

mkdir esp
"$bootPartition" "$PWD/esp"

mkdir -p root/{boot,dev,etc,nix/store,nix/var/nix/profiles,proc,root,run,sys,tmp,var}
chmod 1777 root/tmp
chmod 700 root/root
touch root/etc/NIXOS
xargs cp -a --target-directory root/nix/store <"$closure/store-paths"
ln -s system-1-link root/nix/var/nix/profiles/system
ln -s "$toplevel" root/nix/var/nix/profiles/system-1-link
NIX_REMOTE=local?root=$PWD/root USER=nobody nix-store --load-db <"$closure/registration"
sqlite3 root/nix/var/nix/db/db.sqlite \
    "UPDATE ValidPaths SET registrationTime = $SOURCE_DATE_EPOCH; PRAGMA wal_checkpoint(TRUNCATE); VACUUM"
find esp root -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

truncate -s "${espMiB}M" esp.img
mkfs.vfat -F 32 -n "$espLabel" -i "$(identifier esp | cut -c -8)" esp.img >/dev/null
mcopy -smp -i esp.img esp/* ::
# A quarter more for the file system itself, and for what a first boot writes before the root has grown.
size=$(($(du -sm root | cut -f 1) * 5 / 4 + 256))
uuid=$(identifier root)
mke2fs -q -t ext4 -L "$label" -U "$uuid" -E "hash_seed=$uuid" -d root root.img "${size}M"

mkdir -p "$out"
disk=$out/nixos.img
truncate -s $((1 + espMiB + size + 1))M "$disk"
sfdisk --quiet "$disk" <<TABLE
label: gpt
label-id: $(identifier disk)
start=1MiB, size=${espMiB}MiB, type=uefi, name=$espLabel, uuid=$(identifier esp)
start=$((1 + espMiB))MiB, size=${size}MiB, type=linux, name=$label, uuid=$uuid
TABLE
dd if=esp.img of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
dd if=root.img of="$disk" bs=1M seek=$((1 + espMiB)) conv=notrunc,sparse status=none
