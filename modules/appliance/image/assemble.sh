# linerate-sign PAYLOAD OUT [KEYS [OLD...]]: makes a version from its payload: OUT/ID_VERSION.raw, a disk to boot from,
# and OUT/update, what a static server serves. OLD is such a directory `update` of an older version: a box that runs it
# needs to download only the patches that are made from it.
#
# KEYS is a directory. With db.key and db.crt, it signs the boot loader and the boot file for Secure Boot; if PK, KEK
# and db.auth are there, the boot loader enrols them on a machine in setup mode. With pcr.key and pcr.pub, it signs the
# expected value of PCR 11, to which /var is sealed. With gnupg, a GnuPG home directory, it signs the update's manifest.
set -euo pipefail
shopt -s inherit_errexit
if [[ $# -lt 2 || ! -e $1/partitions.json ]]; then
    echo "usage: linerate-sign PAYLOAD OUT [KEYS [OLD...]], OLD being the directory update of an older version" >&2
    exit 2
fi
payload=$(realpath "$1")
of() {
    jq -r ".$1" "$payload/partitions.json"
}
id=$(of id)
version=$(of version)
# The directories of older versions, and their versions in the same order.
olds=() befores=()
for old in "${@:4}"; do
    before=$(basename "$old/${id}"_*.efi .efi)
    before=${before#"${id}_"}
    if [[ ! -e $old/${id}_$before.efi || $before == "$version" ]] || ! compgen -G "$old/*.store" >/dev/null; then
        echo "error: $old is not the directory update of another version of $id" >&2
        exit 2
    fi
    olds+=("$(realpath "$old")") befores+=("$before")
done
mkdir -p "$2/update"
out=$(realpath "$2")
keys=${3:+$(realpath "$3")}
export SOURCE_DATE_EPOCH=315619200
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

hash=$(<"$payload/hash")
# uuid HEX: the UUID of a partition, which is half of the store's hash. So the kernel's command line names both.
uuid() {
    sed -E 's/^(.{8})(.{4})(.{4})(.{4})(.{12}).*/\1-\2-\3-\4-\5/' <<<"$1"
}
store=$(uuid "${hash:0:32}")
verity=$(uuid "${hash:32:32}")

signed=()
if [[ -n $keys && -e $keys/db.key ]]; then
    # The kernel is checked with the boot file that contains it; systemd-sbsign couldn't tell whether it is signed
    # itself.
    signed+=(--secureboot-private-key="$keys/db.key" --secureboot-certificate="$keys/db.crt" --signtool=systemd-sbsign)
    signed+=(--no-sign-kernel)
fi
if [[ -n $keys && -e $keys/pcr.key ]]; then
    signed+=(--pcr-private-key="$keys/pcr.key" --pcr-public-key="$keys/pcr.pub" --pcr-banks=sha256)
    signed+=(--phases=enter-initrd)
fi
uki=${id}_$version.efi
cmdline=$(sed -n 's/^Cmdline=//p' "$payload/uki.conf")
ukify build --config="$payload/uki.conf" --cmdline="$cmdline usrhash=$hash" "${signed[@]}" --output="$out/update/$uki" \
    >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
}
chmod 644 "$out/update/$uki"

# The EFI partition: the boot loader, and this version, which isn't on trial since there is nothing before it.
esp=$scratch/esp
mkdir -p "$esp"/{EFI/BOOT,EFI/Linux,EFI/systemd,loader}
loader=$payload/boot.efi
if [[ -n $keys && -e $keys/db.key ]]; then
    loader=$scratch/boot.efi
    "$SYSTEMD/systemd-sbsign" sign --private-key="$keys/db.key" \
        --certificate="$keys/db.crt" --output="$loader" "$payload/boot.efi" >/dev/null
fi
install -m644 "$loader" "$esp/EFI/BOOT/BOOT$(of efi | tr a-z A-Z).EFI"
install -m644 "$loader" "$esp/EFI/systemd/systemd-boot$(of efi).efi"
install -m644 "$payload/loader.conf" "$esp/loader/loader.conf"
cp "$out/update/$uki" "$esp/EFI/Linux/$uki"
if [[ -n $keys && -e $keys/PK.auth ]]; then
    mkdir -p "$esp/loader/keys/auto"
    cp "$keys"/{PK,KEK,db}.auth "$esp/loader/keys/auto/"
    # On a machine that somebody put into setup mode for this.
    echo "secure-boot-enroll force" >>"$esp/loader/loader.conf"
fi
find "$esp" -exec touch --date "@$SOURCE_DATE_EPOCH" {} +

definitions=$scratch/repart.d
mkdir "$definitions"
# definition NAME TYPE MIB LABEL LINE...
definition() {
    printf '%s\n' "[Partition]" "Type=$2" "SizeMinBytes=${3}M" "SizeMaxBytes=${3}M" "Label=$4" "${@:5}" \
        >"$definitions/$1.conf"
}
definition 10-esp esp "$(of espMiB)" "$(of labels.esp)" Format=vfat "CopyFiles=$esp:/"
definition 20-verity-a "$(of types.verity)" "$(of verityMiB)" "$(of labels.verity)" "UUID=$verity" \
    "CopyBlocks=$payload/verity" ReadOnly=yes
definition 21-store-a "$(of types.store)" "$(of storeMiB)" "$(of labels.store)" "UUID=$store" \
    "CopyBlocks=$payload/store" ReadOnly=yes
SYSTEMD_REPART_MKFS_OPTIONS_VFAT="-i $(cut -c -8 <<<"$hash")" \
    systemd-repart --architecture="$(of architecture)" --offline=yes --sector-size=512 --empty=create --size=auto --dry-run=no --pretty=no \
    --seed="$store" --definitions="$definitions" "$out/${id}_$version.raw" >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
}

cp --no-preserve=mode "$payload/store" "$out/update/${id}_${version}_$store.store"
cp --no-preserve=mode "$payload/verity" "$out/update/${id}_${version}_$verity.verity"
cd "$out/update"
# The disk isn't one of the manifest's files, but it is one of those that were built.
if [[ -e $payload/provenance.json ]]; then
    { sha256sum -- *.efi *.store *.verity && (cd .. && sha256sum -- "${id}_$version.raw"); } |
        jq --raw-input --null-input --sort-keys --slurpfile statement "$payload/provenance.json" '
            $statement[0] + { subject: [inputs | capture("(?<sum>[0-9a-f]{64})  (?<name>.+)")
                | { name, digest: { sha256: .sum } }] }' >"${id}_$version.provenance.json"
fi
# patch OLD NEW PATCH: pkgs/linerate/src/update/patch.rs reads it. One that saves nothing is not made.
patch() {
    zstd --quiet -T1 -9 --long=30 --patch-from="$1" "$2" -o "$scratch/frame"
    if (($(stat -c %s "$scratch/frame") < $(stat -c %s "$2"))); then
        { echo "linerate-patch 1 $(stat -c '%s' "$1" "$2" | paste -sd ' ')" && cat "$scratch/frame"; } >"$3"
    fi
    rm "$scratch/frame"
}
for at in "${!olds[@]}"; do
    old=${olds[at]} before=${befores[at]}
    patch "$old/${id}_$before.efi" "$uki" "${id}_$version-from-$before.efi.patch"
    patch "$old"/*.store "${id}_${version}_$store.store" "${id}_$version-from-$before.store.patch"
done
sums=(*.efi *.store *.verity)
for file in *.patch; do
    [[ ! -e $file ]] || sums+=("$file")
done
[[ ! -e $payload/provenance.json ]] || sums+=("${id}_$version.provenance.json")
sha256sum -- "${sums[@]}" >"$scratch/SHA256SUMS"
mv "$scratch/SHA256SUMS" SHA256SUMS
if [[ -n $keys && -e $keys/gnupg ]]; then
    gpg --homedir "$keys/gnupg" --batch --yes --quiet --detach-sign --output SHA256SUMS.gpg SHA256SUMS
    # Its agent would keep running, with the key.
    gpgconf --homedir "$keys/gnupg" --kill all || true
fi
