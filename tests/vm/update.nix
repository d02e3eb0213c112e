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
    };
  };
}
