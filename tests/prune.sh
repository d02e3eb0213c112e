#!/usr/bin/env bash
# prune.sh: which generations modules/appliance/prune.sh removes, and that it collects garbage then.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{bin,profiles,store}
profile=$work/profiles/system
printf '#!/bin/sh\necho "$@" >%q\nexit "$GC"\n' "$work/told" >"$work/bin/nix-store"
chmod 755 "$work/bin/nix-store"

for generation in {1..20}; do
    mkdir "$work/store/$generation"
    ln -s "../store/$generation" "$profile-$generation-link"
done
# As a relative link, as Nix sets it.
ln -s system-20-link "$profile"
ln -s "$work/store/3" "$work/running"
touch "$profile-of-others-link" "$profile.lock"

# expect WHAT LEFT [GC]: prunes, and checks which generations are left, where garbage collection ends with GC.
expect() {
    local left status=0
    rm -f "$work/told"
    GC=${3:-0} PATH=$work/bin:$PATH bash modules/appliance/prune.sh "$profile" 12 "$work/running" >"$work/said" || status=$?
    left=$(find "$work/profiles" -name 'system-[0-9]*-link' -printf '%f\n' | tr -dc '0-9\n' | sort -n | paste -sd' ')
    [[ $left == "$2" && $status == "${3:-0}" && $(<"$work/told") == "--gc --quiet" ]] || {
        echo "error: $1: ends with $status and leaves $left instead of $2: $(<"$work/said")" >&2
        exit 1
    }
}

expect "the newest and the one that runs stay" "3 9 10 11 12 13 14 15 16 17 18 19 20"
[[ $(<"$work/said") == $'removing generation 8\n'*$'\nremoving generation 1' ]]
expect "with nothing to remove, garbage is collected" "3 9 10 11 12 13 14 15 16 17 18 19 20"
ln -sfn system-9-link "$profile"
ln -s ../store/4 "$profile-21-link"
ln -s ../store/5 "$profile-100-link"
expect "an older one that is current stays" "3 9 11 12 13 14 15 16 17 18 19 20 21 100"
rm "$work/running"
expect "none runs that is a generation, and nobody collects garbage" "9 11 12 13 14 15 16 17 18 19 20 21 100" 1
[[ -e $profile-of-others-link && -e $profile.lock ]]
rm "$work"/profiles/*
expect "there is none" ""
echo "prune: old generations go, and what runs or may boot stays"
