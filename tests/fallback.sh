#!/usr/bin/env bash
# fallback.sh: a generation that does not come up is tried twice, and then the one before boots; by the real
# systemd-boot on UEFI firmware in QEMU, with the entries that modules/appliance/trial.sh leaves.
#
# The kernel has no root file system, so every boot ends in a panic and the next: what counts is who is booted.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh qemu-system-x86_64 mcopy
# Packages without a program.
[[ -e /usr/share/OVMF/OVMF_CODE_4M.fd ]] || .ci/install.sh ovmf
[[ -e /usr/lib/systemd/boot/efi/systemd-bootx64.efi ]] || .ci/install.sh systemd-boot-efi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
boot=$work/boot
mkdir -p "$boot/loader/entries" "$boot/EFI/BOOT"

# NixOS's part: an entry for each generation by its plain name, of which the last is to boot.
generations() {
    local generation
    rm -f "$boot"/loader/entries/nixos-generation-?.conf
    for generation in "$@"; do
        printf '%s\n' 'title NixOS' 'sort-key nixos' "version Generation $generation" 'linux /kernel' \
            "options init=/system-$generation/init console=ttyS0 panic=1" \
            >"$boot/loader/entries/nixos-generation-$generation.conf"
    done
    printf 'timeout 0\ndefault nixos-generation-%s.conf\n' "$generation" >"$boot/loader/loader.conf"
    bash modules/appliance/trial.sh "$boot" 2
}

# What there is, and which is to boot.
expect() {
    local found
    found=$(cd "$boot/loader/entries" && echo *)
    found+=" $(sed -n 's/^default //p' "$boot/loader/loader.conf")"
    found=${found//nixos-generation-/} found=${found//.conf/}
    [[ $found == "$2" ]] || {
        echo "error: $1: $found instead of $2" >&2
        exit 1
    }
}

# What the boot loader, or systemd-bless-boot, does to an entry.
becomes() {
    mv "$boot/loader/entries/nixos-generation-$1.conf" "$boot/loader/entries/nixos-generation-$2.conf"
}

generations 1
expect "the first has nothing to fall back to" "1 1"
generations 1 2
expect "the second is on trial" "1 2+2 nixos-*"
becomes 2+2 2+1-1
generations 1 2 3
expect "an older one stays on trial" "1 2+1-1 3+2 nixos-*"
becomes 3+2 3
generations 1 2 3
expect "a good one stays good" "1 2+1-1 3 3"
becomes 2+1-1 2+0-2
generations 1 3 2
expect "a bad one that is chosen again is on trial again" "1 2+2 3 nixos-*"
generations 2 3 1
expect "one that is chosen by hand boots by its name" "1 2+2 3 1"
generations 3
expect "the entries of those that are gone go too" "3 3"
generations 3 4
expect "before it boots" "3 4+2 nixos-*"
echo "fallback: entries are put on trial as they should be"

# Debian's, for clouds: it has drivers for nothing, and boots soonest.
kernel=${XDG_CACHE_HOME:-$HOME/.cache}/linerate/fallback-kernel
if [[ ! -e $kernel ]]; then
    mkdir -p "$(dirname "$kernel")"
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
    (cd "$work" && chmod a+rx . && apt-get download -qq "$package" && dpkg-deb --extract "$package"*.deb kernel)
    cp "$work"/kernel/boot/vmlinuz-* "$kernel.new"
    mv "$kernel.new" "$kernel"
fi
cp "$kernel" "$boot/kernel"
cp /usr/lib/systemd/boot/efi/systemd-bootx64.efi "$boot/EFI/BOOT/BOOTX64.EFI"
cp /usr/share/OVMF/OVMF_VARS_4M.fd "$work/variables"
truncate --size 64M "$work/disk"
mformat -i "$work/disk" -F ::
mcopy -s -i "$work/disk" "$boot"/* ::/

timeout 180 qemu-system-x86_64 -machine q35 -accel tcg -m 512 -nodefaults -nographic -serial file:"$work/said" \
    -drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd \
    -drive if=pflash,format=raw,file="$work/variables" \
    -drive if=virtio,format=raw,file="$work/disk" </dev/null &
machine=$!
booted=
while [[ $(wc -w <<<"$booted") -lt 4 ]] && kill -0 $machine 2>/dev/null; do
    sleep 1
    booted=$(grep --text --only-matching 'Command line: init=/system-.' "$work/said" | grep -o '.$' | paste -sd ' ' || true)
done
kill $machine 2>/dev/null || true
wait $machine || true
[[ $booted == "4 4 3 3" ]] || {
    echo "error: generations were booted in the order $booted instead of 4 4 3 3" >&2
    exit 1
}
echo "fallback: systemd-boot tried the new generation twice, and then booted the one before"
