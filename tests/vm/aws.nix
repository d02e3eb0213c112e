{ aws, ... }:
{
  nodes.box = aws;
}
