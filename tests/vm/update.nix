{ metal, ... }:
{
  nodes.box = {
    imports = [
      metal
      ../generations.nix
    ];
    virtualisation = {
      useBootLoader = true;
      useEFIBoot = true;
      # The watchdog ends a generation that hangs.
      qemu.options = [
        "-device i6300esb"
        "-action watchdog=reset"
      ];
    };
  };
}
