# A unit's limit as a number, for the profile. systemd also accepts sizes with K, M, G or T, to the base 1024
# (systemd.resource-control(5)). Anything else, such as `infinity` or a share of the machine's memory, is null.
{ lib }:
let
  factors = rec {
    "" = 1;
    K = 1024;
    M = 1024 * K;
    G = 1024 * M;
    T = 1024 * G;
  };
in
limit:
let
  size = if lib.isString limit then builtins.match "([0-9]+)([KMGT]?)" limit else null;
in
if lib.isInt limit then
  limit
else if size == null then
  null
else
  lib.toIntBase10 (lib.head size) * factors.${lib.last size}
