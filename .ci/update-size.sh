#!/usr/bin/env bash
# update-size.sh OLD NEW [KIND...]: prints what a box with the image OLD downloads for NEW: all of it; or only what is
# new, in chunks (as casync and desync do) or in one patch (zstd), as linerate-sign makes it. Both are directories
# `update`, as linerate-sign and `nix build .#NAME-update` make them. A KIND is efi, verity, or one of those below, without which it
# prints all: it makes both stores again from their files, with other options. That takes minutes a kind, and 3 GiB in
# $TMPDIR.
#
# The programs have to be as new as those that made the stores, which Debian 12's are not:
#   nix shell nixpkgs#{erofs-utils,casync,xz,zstd} --command .ci/update-size.sh OLD NEW
set -euo pipefail
shopt -s inherit_errexit
for program in casync fsck.erofs mkfs.erofs xz zstd; do
    command -v "$program" >/dev/null || {
        echo "error: $program is not installed" >&2
        exit 1
    }
done
if [[ $# -lt 2 ]] || ! compgen -G "$1/*.store" >/dev/null || ! compgen -G "$2/*.store" >/dev/null; then
    echo "usage: update-size.sh OLD NEW [KIND...], OLD and NEW being directories with a .store" >&2
    exit 2
fi
old=$1 new=$2
shift 2
chosen=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# How each store is made: a name, and mkfs.erofs' options for it. The first is as the image's own, from image/store.sh.
kinds=(
    "lz4hc,9  -zlz4hc,9 -C65536 -Eztailpacking"
    "lz4hc,9 in 16 KiB  -zlz4hc,9 -C16384 -Eztailpacking"
    "lz4hc,9 in 4 KiB  -zlz4hc,9 -C4096 -Eztailpacking"
    "lz4hc,9 without tails in it  -zlz4hc,9 -C65536"
    "lz4hc,9 without duplicates  -zlz4hc,9 -C65536 -Ededupe"
    "zstd,8  -zzstd,8 -C65536 -Eztailpacking"
    "none  -Enoinline_data"
    "none, with tails  -Eztailpacking"
)
for name in "${chosen[@]}"; do
    printf '%s\n' efi verity "${kinds[@]%%  *}" | grep -qxF -e "$name" || {
        echo "error: $name is none of: efi, verity$(printf '; %s' "${kinds[@]%%  *}")" >&2
        exit 2
    }
done

# Chunks' average size in KiB: the smallest is a quarter of it, the largest four times as much.
chunks=(64 16 8)

# size FILE...: their bytes.
size() {
    cat -- "$@" | wc -c
}

# row NAME IMAGE BYTES REQUESTS
row() {
    awk -v name="$1" -v image="$2" -v bytes="$3" -v requests="$4" \
        'BEGIN { printf "| %s | %.1f | %.1f | %d |\n", name, image / 1048576, bytes / 1048576, requests }'
}

# is_chosen KIND
is_chosen() {
    [[ ${#chosen[@]} == 0 ]] || printf '%s\n' "${chosen[@]}" | grep -qxF -e "$1"
}

# chunked NAME OLD NEW: what is in no chunk of OLD, at each size of chunks, compressed one by one, and NEW's index.
chunked() {
    local kib work=$scratch/chunks file
    for kib in "${chunks[@]}"; do
        mkdir "$work"
        for file in "$2" "$3"; do
            find "$work" -name '*.cacnk' | sort >"$scratch/before"
            casync make --compression=zstd --chunk-size=$((kib * 256)):$((kib * 1024)):$((kib * 4096)) \
                --store="$work" "$scratch/index.caibx" "$file" >/dev/null
        done
        find "$work" -name '*.cacnk' | sort | comm -13 "$scratch/before" - >"$scratch/added"
        row "$1, chunks of $kib KiB" "$(size "$3")" \
            $(($(xargs -r cat <"$scratch/added" | wc -c) + $(size "$scratch/index.caibx"))) \
            $(($(wc -l <"$scratch/added") + 1))
        rm -r "$work"
    done
}

# patched NAME OLD NEW: one file that makes NEW from OLD, which it checks.
patched() {
    zstd --quiet --long=30 -9 --patch-from="$2" "$3" -o "$scratch/patch"
    zstd --quiet --decompress --long=30 --patch-from="$2" --stdout "$scratch/patch" | cmp - "$3"
    row "$1, one patch" "$(size "$3")" "$(size "$scratch/patch")" 1
    rm "$scratch/patch"
}

# wired NAME NEW: all of NEW, as systemd-sysupdate can unpack it while it downloads.
wired() {
    row "$1, all of it by xz" "$(size "$2")" "$(xz --threads=0 -6 --stdout "$2" | wc -c)" 1
}

echo "| store | image, MiB | download, MiB | requests |"
echo "|---|---|---|---|"
row "all of it" "$(size "$new"/*.store)" "$(size "$new"/*.{store,verity,efi})" 3
for part in efi verity; do
    is_chosen "$part" || continue
    chunked "$part" "$old"/*."$part" "$new"/*."$part"
    patched "$part" "$old"/*."$part" "$new"/*."$part"
done
for version in old new; do
    fsck.erofs --extract="$scratch/$version" "${!version}"/*.store >/dev/null
done
for kind in "${kinds[@]}"; do
    name=${kind%%  *}
    is_chosen "$name" || continue
    for version in old new; do
        # shellcheck disable=SC2086 # Several options.
        mkfs.erofs --quiet -T1 --all-root -Uclear ${kind#*  } "$scratch/$version.store" "$scratch/$version" >/dev/null
    done
    wired "$name" "$scratch/new.store"
    chunked "$name" "$scratch/old.store" "$scratch/new.store"
    patched "$name" "$scratch/old.store" "$scratch/new.store"
    rm "$scratch"/{old,new}.store
done
