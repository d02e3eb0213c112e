#!/usr/bin/env bash
# keep.sh: which entries modules/appliance/keep.sh writes where NixOS has written none. tests/vm/update.py shows that
# they boot.
set -euo pipefail
shopt -s extglob
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
boot=$work/boot profile=$work/profiles/system
mkdir -p "$boot"/{loader/entries,EFI/nixos} "$work"/{profiles,store}

fail() {
    echo "error: $*" >&2
    exit 1
}

# A system with its own initrd, as a generation of the profile.
for generation in 1 2 3 4 5 6 7 8 9 10; do
    system=$work/store/system-$generation
    mkdir -p "$system" "$work/store/initrd-$generation" "$work/store/linux"
    echo "initrd $generation" >"$work/store/initrd-$generation/initrd"
    echo kernel >"$work/store/linux/bzImage"
    ln -s "$work/store/initrd-$generation/initrd" "$system/initrd"
    ln -s "$work/store/linux/bzImage" "$system/kernel"
    echo "24.11.$generation" >"$system/nixos-version"
    echo "console=ttyS0 panic=1" >"$system/kernel-params"
    ln -s "$system" "$profile-$generation-link"
done

# NixOS's part, with a limit of three: it chooses generation $1 of all up to $2, if that one has an entry.
writes() {
    local generation system
    rm -f "$boot"/loader/entries/nixos-generation-*([0-9]).conf "$boot"/EFI/nixos/*
    for ((generation = $2 > 3 ? $2 - 2 : 1; generation <= $2; generation++)); do
        system=$work/store/system-$generation
        cp "$work/store/linux/bzImage" "$boot/EFI/nixos/linux-bzImage.efi"
        cp "$system/initrd" "$boot/EFI/nixos/initrd-$generation-initrd.efi"
        printf '%s\n' 'title NixOS' 'sort-key nixos' "version Generation $generation" \
            'linux /EFI/nixos/linux-bzImage.efi' "initrd /EFI/nixos/initrd-$generation-initrd.efi" \
            "options init=$system/init console=ttyS0 panic=1" 'machine-id 0123' \
            >"$boot/loader/entries/nixos-generation-$generation.conf"
        [[ $generation != "$1" ]] ||
            printf 'timeout 0\ndefault nixos-generation-%s.conf\n' "$generation" >"$boot/loader/loader.conf"
    done
}

keep() {
    bash modules/appliance/keep.sh "$boot" "$profile" "$@"
}

# Checks which entries there are, and which is the default.
expect() {
    local found entry file
    found=$(cd "$boot/loader/entries" && printf '%s\n' * | sort -V | tr '\n' ' ')$(
        sed -n 's/^default //p' "$boot/loader/loader.conf"
    )
    found=${found//nixos-generation-/} found=${found//.conf/}
    [[ $found == "$2" ]] || fail "$1: $found instead of $2"
    for entry in "$boot"/loader/entries/*; do
        while read -r file; do
            [[ -s $boot$file ]] || fail "$1: $entry names $file, which is not there"
        done < <(sed -nE 's/^(linux|initrd) //p' "$entry")
    done
}

writes 2 3
before=$(cd "$boot" && find . -type f -printf '%p %T@\n' | sort)
keep "$work/store/system-2" "$profile-1-link"
[[ $before == "$(cd "$boot" && find . -type f -printf '%p %T@\n' | sort)" ]] || fail "an entry of NixOS is written again"
expect "where NixOS has an entry, nothing is added" "1 2 3 2"

writes 10 10
keep "$work/store/system-10" "$profile-1-link"
expect "the one that runs keeps an entry" "1 8 9 10 10"
sed 's/-8/-1/; s/Generation .*/Generation 1 24.11.1/' "$boot/loader/entries/nixos-generation-8.conf" | sort |
    diff - <(sort "$boot/loader/entries/nixos-generation-1.conf") || fail "its entry is not like the others"
[[ $(<"$boot/EFI/nixos/initrd-1-initrd.efi") == "initrd 1" ]] || fail "its initrd is another's"

writes 4 10
keep "$work/store/system-4" "$profile-1-link"
expect "an older one that is chosen boots, and the one that runs is kept too" "1 4 8 9 10 4"

# Secrets (`boot.initrd.secrets`) are appended by a script of the system, which fails where they are no longer.
secrets() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/store/system-$1/append-initrd-secrets"
    chmod +x "$work/store/system-$1/append-initrd-secrets"
}
secrets 1 'echo secret >>"$1"'
writes 4 10
keep "$work/store/system-4" "$profile-1-link"
[[ $(<"$boot/EFI/nixos/initrd-1-initrd.efi") == $'initrd 1\nsecret' ]] || fail "its initrd has no secrets"
secrets 1 'echo "no such file" >&2; exit 1'
writes 4 10
keep "$work/store/system-4" "$profile-1-link" 2>"$work/said" || fail "secrets that are gone stop an update"
expect "one whose secrets are gone keeps an entry" "1 4 8 9 10 4"
[[ $(<"$boot/EFI/nixos/initrd-1-initrd.efi") == "initrd 1" ]] || fail "its initrd is not as it was built"
grep -q '^warning: .*nixos-generation-1.conf' "$work/said" || fail "nobody is told: $(<"$work/said")"
secrets 4 'echo "no such file" >&2; exit 1'
writes 10 10
! keep "$work/store/system-4" "$profile-1-link" 2>"$work/said" || fail "what is chosen boots without its secrets"
expect "nothing is changed for it" "8 9 10 10"
rm "$work"/store/system-{1,4}/append-initrd-secrets

rm "$work/store/initrd-1/initrd"
mkdir "$work/store/initrd-1/initrd"
writes 10 10
! keep "$work/store/system-10" "$profile-1-link" 2>"$work/said" || fail "a file that cannot be copied is in an entry"
expect "what cannot be copied has no entry" "8 9 10 10"
rmdir "$work/store/initrd-1/initrd"
echo "initrd 1" >"$work/store/initrd-1/initrd"

writes 4 10
keep "$work/store/system-4" "$work/nothing"
expect "none runs that is known to be good" "4 8 9 10 4"

# NixOS leaves the entry of one that was tried behind, without its files.
mv "$boot/loader/entries/nixos-generation-4.conf" "$boot/loader/entries/nixos-generation-4+0-2.conf"
writes 4 10
keep "$work/store/system-4"
rm "$boot/loader/entries/nixos-generation-4+0-2.conf"
expect "what is left of an entry is none" "4 8 9 10 4"

rm "$boot"/loader/entries/*
ln -s "$work/store/system-1" "$profile-11-link"
writes 10 10
keep "$work/store/system-10" "$work/store/system-1"
expect "the same system has its newest number" "8 9 10 11 10"

rm "$boot"/loader/entries/* "$profile"-{1,11}-link
writes 10 10
keep "$work/store/system-10" "$work/store/system-1"
expect "one that is deleted from the profile goes" "8 9 10 10"

echo "keep: what runs and what is chosen keep an entry"
