# The same cards as in nic.nix.
{ console, lib, ... }:
import ./nic.nix {
  inherit lib;
  box = console;
}
