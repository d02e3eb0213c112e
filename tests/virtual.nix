# A host with a card that QEMU does not have, on QEMU's: a card that is missing makes a box ill. Nor has QEMU the host's
# CPUs for queues.
card:
{ lib, ... }:
{
  linerate.tuning.nic.${card} = {
    driver = lib.mkForce "virtio_net";
    queues = lib.mkForce null;
    placement = lib.mkForce null;
  };
}
