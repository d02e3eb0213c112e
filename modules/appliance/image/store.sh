# store.sh: writes $out, a whole version of an image, unsigned: the compressed store (store), its hashes (verity, hash),
# what the boot file is made of (uki.conf), and a list of what is in it (closure).
#
# The same closure gives the same bytes: no time of day, no random salt, and identifiers that follow from the content.
set -euo pipefail
shopt -s inherit_errexit

# identifier WHAT: a UUID for this system.
identifier() {
    sha256sum <<<"$toplevel $1" | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/'
}

mkdir -p "$out" store
while read -r path; do
    # It is in the boot file; here, only bootspec and a link name it.
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
