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
      systems = [
        "aarch64-linux"
        "x86_64-linux"
      ];
      eachSystem = lib.genAttrs systems;
      pkgsOf = system: nixpkgs.legacyPackages.${system};

      packagesOf = import ./pkgs { inherit advisory-db crane lib; };
      linerateOf = eachSystem (system: packagesOf (pkgsOf system));

      # A module that other flakes import. It brings the packages that it runs.
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
      image = import ./hosts/images.nix { inherit lib; };
      appliances = image.appliances {
        hosts = { inherit aws-c6i tengbe; };
        date = self.lastModifiedDate or "19700101000000";
      };
      inherit (self.nixosConfigurations) aws-c6i tengbe vm;
      # The architecture of all hosts here.
      system = "x86_64-linux";
    in
    {
      # pkgs.linerate, pkgs.linerate-links and the others. Their names must not depend on any package of the overlay
      # itself.
      overlays.default =
        final: prev: lib.mapAttrs (name: _: (packagesOf final).all.${name}) (packagesOf prev).all;

      nixosModules = lib.mapAttrs (_: exported) {
        default = ./modules;
        links = ./modules/services/links.nix;
        api = ./modules/services/api.nix;
        files = ./modules/services/files.nix;
        console = ./modules/services/console.nix;
        tuning = ./modules/tuning;
        appliance = ./modules/appliance;
        disk = ./modules/appliance/disk.nix;
        fleet = ./modules/fleet;
      };

      # What makes a disk, or a medium that installs, of a host that has the module `disk`.
      lib = { inherit (image) disk installer; };

      nixosConfigurations = {
        aws-c6i = host ./hosts/aws-c6i;
        tengbe = host ./hosts/tengbe;
        vm = host ./hosts/vm;
      };

      packages = eachSystem (
        each:
        linerateOf.${each}.all
        // {
          default = linerateOf.${each}.generic.links;
          options = import ./pkgs/options.nix {
            inherit lib;
            pkgs = pkgsOf each;
            modules = self.nixosModules;
          };
          docs = import ./docs {
            inherit lib;
            pkgs = pkgsOf each;
          };
        }
        // lib.optionalAttrs (each == system) appliances
        // lib.optionalAttrs (each == system) {
          aws-c6i-image = image.disk aws-c6i;
          tengbe-image = image.disk tengbe;
          tengbe-installer = image.installer tengbe;
          vm = vm.config.system.build.vm;
        }
      );

      apps = eachSystem (
        each:
        import ./pkgs/apps.nix {
          inherit lib;
          pkgs = pkgsOf each;
          linerate = linerateOf.${each};
          vm = if each == system then self.packages.${system}.vm else null;
        }
      );

      checks = eachSystem (
        each:
        let
          pkgs = pkgsOf each;
        in
        linerateOf.${each}.checks
        // {
          nix-format = import ./tests/format.nix { inherit pkgs; };
          nix-cases = import ./tests/cases.nix { inherit lib pkgs; };
          nix-modules = import ./tests/modules.nix {
            inherit lib pkgs;
            modules = self.nixosModules;
            overlay = self.overlays.default;
          };
        }
        // lib.optionalAttrs (each == system) (
          import ./tests/vm.nix {
            inherit lib pkgs;
            linerate = self.nixosModules.default;
            rawImage = image.disk;
          }
          // {
            nix-template = import ./tests/template.nix {
              inherit nixpkgs pkgs;
              linerate = self;
            };
          }
        )
      );

      devShells = eachSystem (each: {
        default = linerateOf.${each}.shell;
      });

      formatter = eachSystem (each: (pkgsOf each).nixfmt);

      templates.default = {
        path = ./templates/host;
        description = "A flake of your own, with a host that runs linerate";
      };
    };
}
