# grow.sh DEVICE: exits with 2 if no room is left behind this partition, and with 0 if there is, or if it is no partition.

# growpart leaves less than a MiB as it is, and GPT's second table takes 33 sectors.
least=$((2048 + 33))

part=/sys/class/block/$(basename "$(readlink -f "$1")")
[[ -e $part/partition ]] || exit 0
# In sectors of 512 bytes, whatever the disk's are (linux/blk_types.h). Beside a partition is its disk's own size.
(($(<"$part/../size") - $(<"$part/start") - $(<"$part/size") >= least)) || exit 2
