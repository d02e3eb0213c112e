# first-boot.sh REPART: adds and grows partitions on the disk that has the store which is open, and says which disk it is.
set -euo pipefail
mapped=$(basename "$(realpath /dev/mapper/usr)")
for slave in /sys/block/"$mapped"/slaves/*; do
    partition=$(basename "$slave")
    break
done
disk=$(basename "$(dirname "$(realpath "/sys/class/block/$partition")")")
# The root is in memory: sysupdate and others look here for the disk that it would be on, in this form alone.
mkdir -p /run/systemd
ln -sfn "/dev/block/$(<"/sys/class/block/$partition/dev")" /run/systemd/volatile-root
exec "$1" --dry-run=no --definitions=/etc/repart.d --pretty=no "/dev/$disk"
