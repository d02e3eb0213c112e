{ metal, visitor, ... }:
{
  nodes = {
    inherit visitor;
    box = {
      imports = [
        metal
        ../generations.nix
        ../serving.nix
      ];
      virtualisation = {
        useBootLoader = true;
        useEFIBoot = true;
      };
    };
  };
}
