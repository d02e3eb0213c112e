#!/usr/bin/env bash
# reboot.sh: after an update, the box reboots if its system has changed in any way, but not every night into one that
# has failed its trial.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work"/{bin,one,two,three}
printf '#!/bin/sh\necho "$@" >%q\n' "$work/told" >"$work/bin/shutdown"
chmod 755 "$work/bin/shutdown"

# after BOOTED BUILT: what shutdown is told then.
after() {
    ln -sfn "$work/$1" "$work/booted"
    ln -sfn "$work/$2" "$work/built"
    rm -f "$work/told"
    PATH=$work/bin:$PATH bash modules/appliance/reboot.sh "$work/booted" "$work/built" "$work/tried" >"$work/said"
    cat "$work/told" 2>/dev/null || echo nothing
}

expect() {
    local told
    told=$(after "$2" "$3")
    [[ $told == "$4" ]] || {
        echo "error: $1: shutdown is told $told instead of $4: $(<"$work/said")" >&2
        exit 1
    }
}

expect "nothing has changed" one one nothing
expect "another system" one two "-r +1"
expect "it has failed its trial, and the one before is booted" one two nothing
expect "a further system" one three "-r +1"
expect "which is booted" three three nothing
expect "the one that had failed is built again, on another" three two "-r +1"
echo "reboot: an update is booted once, whatever of it has changed"
