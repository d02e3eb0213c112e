{ box, ... }:
{
  nodes = { inherit box; };
}
