{ aws, ... }:
{
  nodes.box = {
    imports = [ aws ];
    virtualisation.diskSize = 12288;
  };
}
