# Adapts a host to QEMU's cards, since a missing card makes a box unhealthy, and QEMU doesn't have the host's card. It
# also lacks the host's CPUs for queues. If every instruction is emulated, a card gets its name late: udev handles it
# after the disks.
card:
{ lib, ... }:
{
  linerate.tuning.nic.${card} = {
    driver = lib.mkForce "virtio_net";
    queues = lib.mkForce null;
    placement = lib.mkForce null;
  };
  linerate.appliance.health.patience = lib.mkDefault 300;
  systemd.network.wait-online.timeout = lib.mkDefault 600;
}
