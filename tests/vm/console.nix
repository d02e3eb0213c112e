# The same cards.
{ console, lib, ... }:
import ./nic.nix {
  inherit lib;
  box = console;
}
