{ box, visitor, ... }:
{
  nodes = { inherit box visitor; };
}
