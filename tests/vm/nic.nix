{ box, lib, ... }:
{
  nodes.box = {
    imports = [ box ];
    virtualisation = {
      cores = lib.mkForce 4;
      # A network from the driver has one queue; this card brings its own four.
      qemu.options = [
        "-netdev user,id=queues"
        "-device pcie-root-port,id=queues-port,slot=9"
        "-device igb,bus=queues-port,netdev=queues"
      ];
    };
  };
}
