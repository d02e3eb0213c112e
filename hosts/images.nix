# Disks to boot a host from. Made by functions that NixOS 24.11 and 26.05 both have.
{ lib, nixpkgs }:
let
  # An EFI system partition and a root.
  disk =
    host: options:
    import "${nixpkgs}/nixos/lib/make-disk-image.nix" (
      {
        inherit lib;
        inherit (host) config pkgs;
        name = host.config.networking.hostName;
        format = "raw";
        partitionTableType = "efi";
        # A kernel and an initrd for each generation that the loader shows.
        bootSize = "512M";
        diskSize = "auto";
        # The box is configured from elsewhere.
        copyChannel = false;
      }
      // options
    );
in
{
  # For `aws ec2 import-snapshot`.
  amazon =
    host:
    (host.extendModules {
      modules = [ "${nixpkgs}/nixos/maintainers/scripts/ec2/amazon-image.nix" ];
    }).config.system.build.amazonImage;

  # For `dd`: the root grows when it boots.
  raw = host: disk host { };

  # For `dd` onto a stick that puts the host onto the machine's own disk.
  installer =
    target:
    let
      label = "installer";
      medium = lib.nixosSystem { modules = [ (import ./installer { inherit label target; }) ]; };
    in
    # With what its system is made of, for whoever asks for that.
    disk medium { inherit label; } // { inherit (medium) config; };
}
