#!/usr/bin/env bash
# trial.sh: which generations modules/appliance/trial.sh puts on trial, and that it runs whatever else has failed.
# tests/vm/update.py shows that systemd-boot then boots as it should.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
boot=$work/boot
mkdir -p "$boot/loader/entries" "$work"/{bin,efivars}

# NixOS's part: an entry with a plain name for each generation, which may be NUMBER=SYSTEM.
writes() {
    local each generation
    rm -f "$boot"/loader/entries/nixos-generation-?.conf
    for each in "$@"; do
        generation=${each%=*}
        printf '%s\n' 'title NixOS' 'sort-key nixos' "version Generation $generation" 'linux /kernel' \
            "options init=/system-${each#*=}/init console=ttyS0 panic=1" \
            >"$boot/loader/entries/nixos-generation-$generation.conf"
    done
}

# The same, and the last one boots next.
generations() {
    writes "$@"
    local last=${*: -1}
    printf 'timeout 0\ndefault nixos-generation-%s.conf\n' "${last%=*}" >"$boot/loader/loader.conf"
    trial "$work/nightly" "$variable"
}

trial() {
    bash modules/appliance/trial.sh "$boot" 2 "$@"
}

# A disk on which nothing is installed yet.
begin() {
    rm -rf "$boot"/loader/* "$work/nightly"
    mkdir "$boot/loader/entries"
    variable=
}

# The firmware's variable about the entry that this boot came from: UTF-16, after four bytes of attributes.
booted() {
    variable=$work/efivars/LoaderBootCountPath
    { printf '\6\0\0\0'; sed 's/./&\x00/g' <<<"\\loader\\entries\\nixos-generation-$1.conf" | tr -d '\n'; } >"$variable"
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

begin
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

# A system that has failed comes back under another number, when it has been taken back in between.
for nightly in '' "$work/nightly"; do
    begin
    generations 1=A
    [[ -z $nightly ]] || touch "$nightly"
    generations 1=A 2=B
    becomes 2+2 2+0-2
    generations 1=A 2=B 3=A
    expect "a good system under another number is good" "1 2+0-2 3 3"
    generations 1=A 2=B 3=A 4=B
    expect "a bad one under another number is on trial" "1 2+0-2 3 4+2 nixos-*"
    boots "it is tried" 4
    becomes 4+2 4
    generations 1=A 2=B 3=A 4=B
    expect "it is good once it has been" "1 2+0-2 3 4 4"
done

# Names are missing in `seen` as older versions of trial.sh left it.
sed -i /^nixos-/d "$boot/loader/linerate-seen"
generations 1=A 2=B 3=A 4=B 5=C
expect "what was good before names were written is good" "1 2+0-2 3 4 5+2 nixos-*"

begin
generations 1
generations 1 2
becomes 2+2 2+1-1
booted 2+1-1
generations 1 2
expect "one that runs on trial keeps the name that it was booted by" "1 2+1-1 nixos-*"
becomes 2+1-1 2+0-2
booted 2+0-2
generations 1 2
expect "at its last try too" "1 2+0-2 nixos-*"
boots "it is not booted again before it is good" 1
generations 1 2 3
booted 3+1-1
generations 1 3 2
expect "another that has failed gets its tries again meanwhile" "1 2+2 3+2 nixos-*"
rm "$variable"
generations 1 3 2
expect "entries keep their counters where the firmware does not answer" "1 2+2 3+2 nixos-*"

begin
generations 1
generations 1 2
# NixOS has removed an entry, and then fails.
writes 2
trial "$work/nightly" '' 1
generations 1 2 3
expect "what was good is good after an install that failed" "1 2+2 3+2 nixos-*"

begin
generations 1
generations 1 2
becomes 2+2 2+0-2
generations 1 2 3
generations 2 3 1
# NixOS ends before it has written all of them, and after.
for written in '1 2' '1 2 3'; do
    # shellcheck disable=SC2086 # Several numbers.
    writes $written
    trial "$work/nightly" '' 1
    expect "no counter is lost where NixOS fails" "1 2+0-2 3+2 1"
done

# What NixOS runs after its own script (update.nix), with stand-ins that end as told.
script=$work/boot-loader
sed -e "s#/nix/store/[^ ]*/bin/#$work/bin/#g" -e "s#/sys/firmware/efi/efivars/[^ ]*#$work/efivars/counted#g" \
    tests/rendered/tengbe/boot-loader >"$script"
for program in linerate-keep linerate-trial systemctl; do
    printf '#!/bin/bash\necho "%s" "$@" >>%q\nexit "$%s"\n' $program "$work/ran" "${program#linerate-}" \
        >"$work/bin/$program"
    chmod 755 "$work/bin/$program"
done
# ends WHAT STATUS RAN BUILDER KEEP TRIAL: it ends with STATUS and has run RAN, where the others end with these.
ends() {
    local status=0 ran
    rm -f "$work/ran"
    keep=$5 trial=$6 systemctl=3 bash -c "(exit $4); . $script" bash /system >"$work/said" 2>&1 || status=$?
    ran=$(grep -v ^systemctl "$work/ran" | tr '\n' ' ')
    [[ $status == "$2" && $ran == "$3" ]] || {
        echo "error: $1: it ends with $status after $ran: $(<"$work/said")" >&2
        exit 1
    }
}
keeps="linerate-keep /boot /nix/var/nix/profiles/system /system"
tries="linerate-trial /boot 2 /run/linerate-nightly"
ends "nothing fails" 0 "$keeps /run/booted-system $tries   " 0 0 0
ends "NixOS fails" 1 "$tries  1 " 1 0 0
ends "an entry cannot be kept" 1 "$keeps /run/booted-system $tries  1 " 0 1 0
ends "the trial fails" 1 "$keeps /run/booted-system $tries   " 0 0 1
touch "$work/efivars/counted"
ends "this boot is on trial" 0 "$keeps $tries $work/efivars/counted  " 0 0 0
echo "trial: entries are put on trial as they should be"
