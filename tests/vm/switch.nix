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
      generations = [ "changed" ];
      virtualisation = {
        useBootLoader = true;
        useEFIBoot = true;
      };
    };
  };
}
