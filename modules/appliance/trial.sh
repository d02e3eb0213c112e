# trial.sh BOOT TRIES: puts new generations on trial, by systemd-boot's boot counting (systemd, Automatic Boot
# Assessment). Run after NixOS has written an entry for each generation into BOOT/loader/entries.
#
# nixos-generation-7+2.conf has two tries left; the boot loader counts them down, systemd-bless-boot takes the
# counter off, and an entry without tries is tried after all others. What was on trial or good stays so.
set -euo pipefail
shopt -s nullglob
boot=$1
tries=$2
entries=$boot/loader/entries
# Which systems had an entry before, by their init.
seen=$boot/loader/linerate-seen

init() {
    grep -o 'init=[^ ]*' "$1"
}

# NixOS rewrites entries by their plain names: their counters go on. Those it no longer has are gone.
for counted in "$entries"/nixos-*+*.conf; do
    plain=${counted%+*}.conf
    if [[ -e $plain ]]; then
        mv "$plain" "$counted"
    else
        rm "$counted"
    fi
done

# The generation that is to boot next. Chosen again after it failed, it gets its tries again.
chosen=$(sed -n 's/^default \(nixos-.*\)\.conf$/\1/p' "$boot/loader/loader.conf")
for counted in "$entries/$chosen"+*.conf; do
    [[ $counted == "$entries/$chosen+$tries.conf" ]] || mv "$counted" "$entries/$chosen+$tries.conf"
done

# The first system on a disk has nothing to fall back to.
if [[ -e $seen ]]; then
    for plain in "$entries"/nixos-*.conf; do
        [[ $plain == *+*.conf ]] || grep -qxF "$(init "$plain")" "$seen" || mv "$plain" "${plain%.conf}+$tries.conf"
    done
fi

# A name would be booted however often it failed. So the first is that has tries left: newer ones come before older ones,
# and what is chosen before all others, by its sort key (systemd, UAPI.1). NixOS writes it anew each time.
for counted in "$entries/$chosen"+*.conf; do
    sed 's/^sort-key .*/sort-key 0-chosen/' "$counted" >"$counted.new"
    mv "$counted.new" "$counted"
    sed 's/^default .*/default nixos-*/' "$boot/loader/loader.conf" >"$boot/loader/loader.conf.new"
    mv "$boot/loader/loader.conf.new" "$boot/loader/loader.conf"
done

for entry in "$entries"/nixos-*.conf; do
    init "$entry"
done >"$seen.new"
mv "$seen.new" "$seen"
sync -f "$boot"
