# store.sh: writes $out, all that a version of an image is, without any signature: the store, compressed (store), what it is
# checked by (verity, hash), of what the boot file is made (uki.conf), and what is in it (closure).
#
# The same closure gives the same bytes: no time of day, no random salt, and identifiers that follow from what it is.
set -euo pipefail
shopt -s inherit_errexit

# identifier WHAT: a UUID, for this system.
identifier() {
    sha256sum <<<"$toplevel $1" | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/'
}

mkdir -p "$out" store
while read -r path; do
    # It is in the boot file; only bootspec and a link name it here.
    [[ $path == "$initrd" ]] || cp -a "$path" store/
done <"$closure/store-paths"
find store -exec touch --no-dereference --date @1 {} +

options=()
[[ $compression == none ]] || options+=("-z$compression" -C65536)
mkfs.erofs --quiet -T1 --all-root -U"$(identifier store)" "${options[@]}" -Eztailpacking "$out/store" store >/dev/null
truncate --size=%4096 "$out/store"
size=$(stat -c %s "$out/store")
if ((size > storeMiB * 1024 * 1024)); then
    echo "error: the store takes $((size >> 20)) MiB; linerate.appliance.image.storeMiB is $storeMiB" >&2
    exit 1
fi
veritysetup format --salt "$(sha256sum <<<"$toplevel salt" | cut -d ' ' -f 1)" --uuid "$(identifier verity)" \
    --root-hash-file "$out/hash" "$out/store" "$out/verity" >/dev/null
truncate --size=%4096 "$out/verity"

cp "$configuration" "$out/uki.conf"
cp "$partitions" "$out/partitions.json"
cp "$closure/store-paths" "$out/closure"
ln -s "$boot" "$out/boot.efi"
cp "$loaderConf" "$out/loader.conf"
[[ -z $provenance ]] || cp "$provenance" "$out/provenance.json"
