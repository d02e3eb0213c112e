# trial.sh BOOT TRIES [NIGHTLY [VARIABLE [INCOMPLETE]]]: puts new generations on trial, with systemd-boot's boot
# counting (systemd, Automatic Boot Assessment). Run after NixOS has written an entry for each generation into
# BOOT/loader/entries; if INCOMPLETE isn't empty, some could not be written. While the file NIGHTLY exists, the update
# of the night has NixOS do so, and not somebody. VARIABLE, if not empty, is the firmware's with the path of the entry
# that this boot came from, which is on trial.
#
# nixos-generation-7+2.conf has two tries left; the boot loader counts them down, systemd-bless-boot removes the
# counter, and an entry without tries is tried after all others. What was on trial or good stays so.
set -euo pipefail
shopt -s nullglob
boot=$1
tries=$2
nightly=${3:-}
variable=${4:-}
incomplete=${5:-}
entries=$boot/loader/entries
# Systems that had an entry before: a line has its init, another the entry's name and its init.
seen=$boot/loader/linerate-seen

init() {
    grep -o 'init=[^ ]*' "$1"
}

# NixOS rewrites entries under their plain names: they keep their counters. Those of removed generations are deleted.
for counted in "$entries"/nixos-*+*.conf; do
    plain=${counted%+*}.conf
    if [[ -e $plain ]]; then
        mv "$plain" "$counted"
    elif [[ -z $incomplete ]]; then
        rm "$counted"
    fi
done

# Systems on trial, and those that have failed it: that they had an entry before does not make them good. Older versions
# of this wrote no names, so that new entries of such systems cannot be told apart: none goes on trial.
tried=
if grep -qs '^nixos-' "$seen"; then
    tried=$(for counted in "$entries"/nixos-*+*.conf; do init "$counted"; done)
fi

# The generation to boot next. If somebody chooses it again after it failed, it gets its tries again; but not while it
# runs on trial, since systemd-bless-boot knows its entry by the name that it was booted by.
chosen=$(sed -n 's/^default \(nixos-.*\)\.conf$/\1/p' "$boot/loader/loader.conf")
failed() {
    [[ -e $nightly && $1 == "$entries/$chosen+0"* ]]
}
# In UTF-16, after four bytes of attributes.
booted=$([[ -z $variable ]] || tail -c +5 "$variable" 2>/dev/null | tr -d '\0') || true
for counted in "$entries/$chosen"+0*.conf; do
    failed "$counted" || [[ $booted == *"${counted##*/}" ]] || mv "$counted" "$entries/$chosen+$tries.conf"
done

# The first system on a disk has nothing to fall back to.
if [[ -e $seen ]]; then
    for plain in "$entries"/nixos-*.conf; do
        [[ $plain != *+*.conf ]] || continue
        system=$(init "$plain")
        # Good is what had this entry before, which has no counter by now, and what had another.
        ! grep -qxF "${plain##*/} $system" "$seen" || continue
        ! grep -qxF "$system" "$seen" || grep -qxF "$system" <<<"$tried" || continue
        mv "$plain" "${plain%.conf}+$tries.conf"
    done
fi

# A name would be booted however often it failed. So the first one with tries left is booted: newer ones come before
# older ones, and the chosen one before all others, by its sort key (systemd, UAPI.1). NixOS writes it again each time.
for counted in "$entries/$chosen"+*.conf; do
    if ! failed "$counted"; then
        sed 's/^sort-key .*/sort-key 0-chosen/' "$counted" >"$counted.new"
        mv "$counted.new" "$counted"
    fi
    sed 's/^default .*/default nixos-*/' "$boot/loader/loader.conf" >"$boot/loader/loader.conf.new"
    mv "$boot/loader/loader.conf.new" "$boot/loader/loader.conf"
done

for entry in "$entries"/nixos-*.conf; do
    system=$(init "$entry")
    name=${entry##*/}
    printf '%s\n' "$system" "${name/+*.conf/.conf} $system"
done >"$seen.new"
# Those whose entry could not be written again stay known.
[[ -z $incomplete || ! -e $seen ]] || cat "$seen" >>"$seen.new"
mv "$seen.new" "$seen"
sync -f "$boot"
