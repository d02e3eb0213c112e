#!/bin/busybox sh
# The initrd of the machine: the root file system is on a disk whose driver is a module.
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B insmod /virtio_blk.ko
until [ -e /dev/vda ]; do $B usleep 20000; done
$B mount -t ext4 /dev/vda /root
exec $B switch_root /root /init
