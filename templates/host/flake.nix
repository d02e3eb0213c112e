{
  description = "A box that runs linerate";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # Where you get linerate from.
    linerate.url = "git+file:///srv/linerate";
    linerate.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    { nixpkgs, linerate, ... }:
    {
      nixosConfigurations.box = nixpkgs.lib.nixosSystem {
        modules = [
          linerate.nixosModules.default
          # The mounts of a disk that linerate's installer has made.
          linerate.nixosModules.disk
          ./box.nix
        ];
      };
    };
}
