# The same box.
import ./nic.nix
