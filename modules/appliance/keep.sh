# keep.sh BOOT PROFILE SYSTEM...: each SYSTEM keeps an entry in BOOT/loader/entries, and the first of them boots next.
# Run after NixOS has written its entries.
#
# NixOS writes entries only for the newest generations of PROFILE, without regard to which one is known to be good: it
# deletes the entry, the kernel and the initrd of an older one, even while that one runs, and does not boot an older one
# that is chosen by hand. Where its own entry is there, this changes nothing.
set -euo pipefail
shopt -s extglob nullglob inherit_errexit
boot=$1
profile=$2
shift 2
chosen=$1
entries=$boot/loader/entries

# Prints the number of the newest generation that is this system.
generation() {
    local link number newest=
    for link in "$profile"-+([0-9])-link; do
        number=${link#"$profile"-} number=${number%-link}
        [[ $(readlink -f "$link") == "$1" ]] || continue
        ((number <= ${newest:-0})) || newest=$number
    done
    echo "$newest"
}

# Appends a system's secrets (`boot.initrd.secrets`) to a copy of its initrd. Their files may be gone since it was built;
# as with NixOS's own entries, only the one that boots next must have them.
add_secrets() {
    local system=$1 initrd=$2
    [[ -e $system/append-initrd-secrets ]] || return 0
    if ! "$system/append-initrd-secrets" "$initrd"; then
        [[ $link != "$chosen" ]] || return 1
        echo "warning: $entry: boots without its secrets, which are gone" >&2
    fi
}

# Copies a file of the store under the name that NixOS gives it there, after a COMMAND that changes the copy, and prints
# that name.
copied() {
    local file name
    file=$(readlink -f "$1")
    # A file in a directory of the store is named after both.
    name=${file##*/}
    [[ ! $file =~ .*/store/([^/]+)/ ]] || name=${BASH_REMATCH[1]}-$name
    name=/EFI/nixos/$name.efi
    if [[ ! -e $boot$name ]]; then
        cp "$file" "$boot$name.new"
        # Files of the store are only readable.
        chmod u+w "$boot$name.new"
        "${@:2}" "$boot$name.new"
        sync "$boot$name.new"
        mv "$boot$name.new" "$boot$name"
    fi
    echo "$name"
}

for link in "$@"; do
    # While a system is installed from another one, nothing runs here.
    [[ -e $link ]] || continue
    system=$(readlink -f "$link")
    # NixOS leaves those with a counter (trial.sh) behind, without their kernel.
    written=("$entries"/nixos-generation-+([0-9]).conf)
    ! grep -qF "init=$system/init " "${written[@]}" /dev/null || continue
    number=$(generation "$system")
    # It has been deleted from the profile.
    [[ -n $number ]] || continue
    entry=nixos-generation-$number.conf
    rm -f "$boot"/EFI/nixos/*.new
    linux=$(copied "$system/kernel")
    initrd=$(copied "$system/initrd" add_secrets "$system")
    {
        # What all of the machine's entries have in common.
        grep -E '^(title|sort-key|machine-id|devicetree) ' "${written[0]}"
        echo "version Generation $number $(<"$system/nixos-version")"
        echo "linux $linux"
        echo "initrd $initrd"
        echo "options init=$system/init $(<"$system/kernel-params")"
    } >"$entries/$entry.new"
    mv "$entries/$entry.new" "$entries/$entry"
    if [[ $link == "$chosen" ]]; then
        sed "s/^default .*/default $entry/" "$boot/loader/loader.conf" >"$boot/loader/loader.conf.new"
        mv "$boot/loader/loader.conf.new" "$boot/loader/loader.conf"
    fi
    sync -f "$boot"
done
