# What hosts have besides as images that are tested: a version.
version:
{ ... }:
{
  linerate.appliance.image = {
    enable = true;
    inherit version;
  };
}
