#!/usr/bin/env bash
# trial.sh: which generations modules/appliance/trial.sh puts on trial. tests/vm/update.py shows that systemd-boot then
# boots as it should.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
boot=$work/boot
mkdir -p "$boot/loader/entries"

# NixOS's part: an entry with a plain name for each generation, the last of which boots next.
generations() {
    local generation
    rm -f "$boot"/loader/entries/nixos-generation-?.conf
    for generation in "$@"; do
        printf '%s\n' 'title NixOS' 'sort-key nixos' "version Generation $generation" 'linux /kernel' \
            "options init=/system-$generation/init console=ttyS0 panic=1" \
            >"$boot/loader/entries/nixos-generation-$generation.conf"
    done
    printf 'timeout 0\ndefault nixos-generation-%s.conf\n' "$generation" >"$boot/loader/loader.conf"
    bash modules/appliance/trial.sh "$boot" 2 "$work/nightly"
}

# Checks which entries there are, and which boots next.
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

# Which generation boots, as systemd-boot chooses: the first that `default` matches. Those without tries come after all
# others; then sort keys decide, and newer ones come before older ones.
boots() {
    local pattern entry name first=
    pattern=$(sed -n 's/^default //p' "$boot/loader/loader.conf")
    while read -r entry; do
        # With or without its counter, depending on systemd's version.
        name=$(sed 's/+[^.]*//' <<<"$entry")
        # shellcheck disable=SC2053 # It is a pattern.
        [[ -n $first || $name != $pattern ]] || first=$entry
    done < <(order)
    first=${first#nixos-generation-}
    [[ ${first%%[.+]*} == "$2" ]] || {
        echo "error: $1: $first boots instead of $2" >&2
        exit 1
    }
}

order() {
    local entry tries
    (cd "$boot/loader/entries" && for entry in *; do
        tries=1
        [[ $entry != *+0* ]] || tries=0
        echo "$tries $(sed -n 's/^sort-key //p' "$entry") $entry"
    done) | sort -k 1,1r -k 2,2 -k 3,3Vr | cut -d ' ' -f 3
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
boots "a bad one that is chosen again is what boots" 2
becomes 2+2 2+1-1
boots "it boots for as long as it has tries" 2
becomes 2+1-1 2+0-2
boots "what is newer boots when it has failed again" 3
becomes 2+0-2 2
boots "it stays when it is good" 2
becomes 2 2+0-2
generations 1 3 2
generations 1 2 3
boots "another is chosen then" 3
generations 1 3 2
generations 2 3 1
expect "one that is chosen by hand boots by its name" "1 2+2 3 1"
generations 3
expect "the entries of those that are gone go too" "3 3"
generations 3 4
expect "before it boots" "3 4+2 nixos-*"
boots "the newest is tried" 4
generations 3 4
expect "one that has not booted yet is on trial when it is installed again" "3 4+2 nixos-*"
becomes 4+2 4+0-2
boots "one that has failed gives the box back" 3
generations 3 4 5
generations 3 5 4
expect "of two on trial the older is chosen" "3 4+2 5+2 nixos-*"
boots "it is what boots" 4
becomes 4+2 4
generations 3 4 6
becomes 6+2 6+0-2
touch "$work/nightly"
generations 3 4 6
expect "one that has failed stays so when an update installs it again" "3 4 6+0-2 nixos-*"
boots "the generation before it still boots" 4
generations 3 4 6 7
expect "what such an update brings is on trial" "3 4 6+0-2 7+2 nixos-*"
boots "it is tried" 7
rm "$work/nightly"
generations 3 4 7 6
expect "somebody may have one that has failed tried again" "3 4 6+2 7+2 nixos-*"
boots "it is tried then" 6
echo "trial: entries are put on trial as they should be"
