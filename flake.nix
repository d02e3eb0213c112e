{
  description = "A small HTTP box that runs at the limit of its hardware";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    crane.url = "github:ipetkov/crane";
    # Known vulnerabilities, for the check `audit`.
    advisory-db = {
      url = "github:rustsec/advisory-db";
      flake = false;
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      crane,
      advisory-db,
    }:
    let
      inherit (nixpkgs) lib;
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};

      packagesOf = import ./pkgs { inherit advisory-db crane lib; };
      linerate = packagesOf pkgs;

      # A module as others import it: with the packages it runs.
      exported = module: {
        imports = [
          module
          (import ./modules/packages.nix { inherit packagesOf; })
        ];
      };
      host =
        module:
        lib.nixosSystem {
          modules = [
            self.nixosModules.default
            module
          ];
        };
      image = import ./hosts/images.nix { inherit lib nixpkgs; };
      inherit (self.nixosConfigurations) aws-c6i tengbe vm;
      vmTests = import ./tests/vm.nix {
        inherit lib pkgs;
        linerate = self.nixosModules.default;
        rawImage = image.raw;
      };
    in
    {
      overlays.default = final: _: { linerate = packagesOf final; };

      nixosModules = lib.mapAttrs (_: exported) {
        default = ./modules;
        links = ./modules/services/links.nix;
        api = ./modules/services/api.nix;
        files = ./modules/services/files.nix;
        tuning = ./modules/tuning;
        appliance = ./modules/appliance;
      };

      nixosConfigurations = {
        aws-c6i = host ./hosts/aws-c6i;
        tengbe = host ./hosts/tengbe;
        vm = host ./hosts/vm;
      };

      packages.${system} = linerate.all // {
        default = linerate.generic.links;
        aws-c6i-image = image.amazon aws-c6i;
        tengbe-image = image.raw tengbe;
        tengbe-installer = image.installer tengbe;
        vm = vm.config.system.build.vm;
      };

      apps.${system} = import ./pkgs/apps.nix {
        inherit lib pkgs linerate;
        inherit (self.packages.${system}) vm;
      };

      checks.${system} =
        linerate.checks
        // vmTests
        // {
          nix-format = import ./tests/format.nix { inherit pkgs; };
          nix-cases = import ./tests/cases.nix { inherit lib pkgs; };
          nix-template = import ./tests/template.nix {
            inherit nixpkgs pkgs;
            linerate = self;
          };
          nix-modules = import ./tests/modules.nix {
            inherit lib pkgs;
            modules = self.nixosModules;
          };
        };

      devShells.${system}.default = linerate.shell;

      formatter.${system} = pkgs.nixfmt;

      templates.default = {
        path = ./templates/host;
        description = "A flake of your own, with a host that runs linerate";
      };
    };
}
