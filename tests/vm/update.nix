{ metal, visitor, ... }:
{
  nodes.visitor = visitor;
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
