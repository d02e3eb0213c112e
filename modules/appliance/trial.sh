# trial.sh BOOT TRIES [NIGHTLY]: puts new generations on trial, with systemd-boot's boot counting (systemd, Automatic
# Boot Assessment). Run after NixOS has written an entry for each generation into BOOT/loader/entries. While the file
# NIGHTLY exists, the update of the night has NixOS do so, and not somebody.
#
# nixos-generation-7+2.conf has two tries left; the boot loader counts them down, systemd-bless-boot removes the
# counter, and an entry without tries is tried after all others. What was on trial or good stays so.
set -euo pipefail
shopt -s nullglob
boot=$1
tries=$2
nightly=${3:-}
entries=$boot/loader/entries
# Systems that had an entry before, by their init.
seen=$boot/loader/linerate-seen

init() {
    grep -o 'init=[^ ]*' "$1"
}

# NixOS rewrites entries under their plain names: they keep their counters. Those of removed generations are deleted.
for counted in "$entries"/nixos-*+*.conf; do
    plain=${counted%+*}.conf
    if [[ -e $plain ]]; then
        mv "$plain" "$counted"
    else
        rm "$counted"
    fi
done

# The generation to boot next. If somebody chooses it again after it failed, it gets its tries again.
chosen=$(sed -n 's/^default \(nixos-.*\)\.conf$/\1/p' "$boot/loader/loader.conf")
failed() {
    [[ -e $nightly && $1 == "$entries/$chosen+0"* ]]
}
for counted in "$entries/$chosen"+*.conf; do
    failed "$counted" || [[ $counted == "$entries/$chosen+$tries.conf" ]] ||
        mv "$counted" "$entries/$chosen+$tries.conf"
done

# The first system on a disk has nothing to fall back to.
if [[ -e $seen ]]; then
    for plain in "$entries"/nixos-*.conf; do
        [[ $plain == *+*.conf ]] || grep -qxF "$(init "$plain")" "$seen" || mv "$plain" "${plain%.conf}+$tries.conf"
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
    init "$entry"
done >"$seen.new"
mv "$seen.new" "$seen"
sync -f "$boot"
