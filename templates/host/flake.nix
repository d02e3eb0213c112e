{
  description = "A box that runs linerate";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    # Your checkout of linerate.
    linerate.url = "git+file:///srv/linerate";
    linerate.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs =
    { nixpkgs, linerate, ... }:
    let
      box = nixpkgs.lib.nixosSystem {
        modules = [
          linerate.nixosModules.default
          # The mounts of a disk that is made below.
          linerate.nixosModules.disk
          ./box.nix
        ];
      };
    in
    {
      nixosConfigurations = { inherit box; };
      # Its disk, and a USB stick that installs it; each is result/nixos.img.
      packages.x86_64-linux = {
        image = linerate.lib.disk box;
        installer = linerate.lib.installer box;
      };
    };
}
