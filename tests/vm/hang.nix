# The same box, with a watchdog.
arguments: {
  imports = [ (import ./update.nix arguments) ];
  nodes.box.virtualisation.qemu.options = [
    "-device i6300esb"
    "-action watchdog=reset"
  ];
}
