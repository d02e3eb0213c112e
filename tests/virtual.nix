# Adapts a host to QEMU's cards, since a missing card makes a box unhealthy, and QEMU doesn't have the host's card. It
# also lacks the host's CPUs for queues.
card:
{ lib, ... }:
{
  linerate.tuning.nic.${card} = {
    driver = lib.mkForce "virtio_net";
    queues = lib.mkForce null;
    placement = lib.mkForce null;
  };
}
