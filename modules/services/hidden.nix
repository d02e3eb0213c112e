# Which places of the host a service's sandbox hides from it (modules/sandbox.nix).
{ lib }:
let
  below = places: path: lib.any (place: lib.hasPrefix "${place}/" "${path}/") places;
in
{
  # By ProtectHome=.
  home = below [
    "/home"
    "/root"
    "/run/user"
  ];
  # By PrivateTmp=.
  temporary = below [
    "/tmp"
    "/var/tmp"
  ];
}
