# first-boot.sh REPART VAR: adds and grows partitions on the disk with the open store, and records which disk that is.
# VAR is the label of /var's partition. With RECOVERY_KEY, a file, /var is encrypted when it is made: with this key,
# which is made too, and with one that the TPM gives out while PCRS are unchanged.
set -euo pipefail
mapped=$(basename "$(realpath /dev/mapper/usr)")
for slave in /sys/block/"$mapped"/slaves/*; do
    partition=$(basename "$slave")
    break
done
disk=$(basename "$(dirname "$(realpath "/sys/class/block/$partition")")")
# The root is in memory: sysupdate and others look here, in exactly this form, for the disk it would otherwise be on.
mkdir -p /run/systemd
ln -sfn "/dev/block/$(<"/sys/class/block/$partition/dev")" /run/systemd/volatile-root
arguments=()
if [[ -n ${RECOVERY_KEY-} && $'\n'$(cat /sys/block/"$disk"/*/uevent)$'\n' != *$'\n'PARTNAME=$2$'\n'* ]]; then
    if [[ ! -e /dev/tpmrm0 ]]; then
        echo "error: /var is to be encrypted (linerate.appliance.image.var.encrypt), and this machine has no TPM 2.0" >/dev/console
        exit 1
    fi
    umask 077
    # 256 bits, in eight groups to be copied by hand; without a newline, since the key is the whole file.
    printf '%s' "$(od -An -tx4 -N32 -w32 /dev/urandom | tr ' ' - | cut -c 2-)" >"$RECOVERY_KEY"
    arguments+=(--key-file="$RECOVERY_KEY" --tpm2-device=auto --tpm2-pcrs="$PCRS")
    # A key that opens nothing is of no use.
    trap 'rm -f "$RECOVERY_KEY"' ERR
fi
"$1" --dry-run=no --definitions=/etc/repart.d --pretty=no "${arguments[@]}" "/dev/$disk"
