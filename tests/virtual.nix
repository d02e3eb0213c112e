# A host with a card that QEMU doesn't have, on QEMU's: a missing card makes a box unhealthy. Nor does QEMU have the
# host's CPUs for queues.
card:
{ lib, ... }:
{
  linerate.tuning.nic.${card} = {
    driver = lib.mkForce "virtio_net";
    queues = lib.mkForce null;
    placement = lib.mkForce null;
  };
}
