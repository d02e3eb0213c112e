# Disks to boot a host from. Made by functions that NixOS 24.11 and 26.05 both have.
{ lib, nixpkgs }:
{
  # For `aws ec2 import-snapshot`.
  amazon =
    host:
    (host.extendModules {
      modules = [ "${nixpkgs}/nixos/maintainers/scripts/ec2/amazon-image.nix" ];
    }).config.system.build.amazonImage;

  # For `dd`: an EFI system partition and a root that grows.
  raw =
    host:
    import "${nixpkgs}/nixos/lib/make-disk-image.nix" {
      inherit lib;
      inherit (host) config pkgs;
      name = host.config.networking.hostName;
      format = "raw";
      partitionTableType = "efi";
      diskSize = "auto";
      # The box is configured from elsewhere.
      copyChannel = false;
    };
}
