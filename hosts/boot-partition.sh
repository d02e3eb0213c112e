# boot-partition.sh DIRECTORY: writes what NixOS's installer writes into the EFI system partition for a host's first
# generation: systemd-boot, the kernel, the initrd and an entry. NixOS's own program for that runs in the host's root,
# with its /etc; neither nixos-install nor the builder of an image can mount an overlay of /etc there.
#
# $toplevel is the system, $loader systemd-boot, $efiArch the firmware's name for the machine, $loaderConf the content
# of loader.conf besides the default, and $trial, which may be empty, the program that puts generations on trial, with
# $tries for each.
set -euo pipefail
shopt -s inherit_errexit
esp=$1

spec() {
    jq --raw-output --arg key "$1" '."org.nixos.bootspec.v1"[$key] | if type == "array" then join(" ") else . end' \
        "$toplevel/boot.json"
}
# NixOS's name for a copy there: the store path and the file's name.
copy() {
    local path=${1#/nix/store/}
    local name=/EFI/nixos/${path%%/*}-${path##*/}.efi
    cp "$1" "$esp$name"
    echo "$name"
}

mkdir -p "$esp"/EFI/{BOOT,nixos,systemd} "$esp/loader/entries"
cp "$loader" "$esp/EFI/BOOT/BOOT${efiArch^^}.EFI"
cp "$loader" "$esp/EFI/systemd/systemd-boot$efiArch.efi"
kernel=$(spec kernel)
kernel=$(copy "$kernel")
initrd=$(spec initrd)
initrd=$(copy "$initrd")
title=$(spec label)
init=$(spec init)
parameters=$(spec kernelParams)
cat >"$esp/loader/entries/nixos-generation-1.conf" <<ENTRY
title NixOS
sort-key nixos
version Generation 1 $title
linux $kernel
initrd $initrd
options init=$init $parameters
ENTRY
printf '%s\n' "$loaderConf" 'default nixos-generation-1.conf' >"$esp/loader/loader.conf"
echo type1 >"$esp/loader/entries.srel"
if [[ -n $trial ]]; then "$trial" "$esp" "$tries"; fi
