# This repository's flake, unchanged, with a nixpkgs whose packages are those of overlay.nix: hosts, images and packages
# that can be built on a machine without a binary cache.
{
  nixpkgs,
  crane,
  # Debian's packages, as in debian.txt; their files, and the crates' files.
  list,
  debs,
  crates,
  # The Rust toolchain's directory.
  rust,
  # The directory of our programs, built by cargo, instead of crane's; null for crane's.
  programs ? null,
  # Cargo's profile for crane's builds. `dev` takes a few minutes, where `release` takes twelve for each kind of CPU.
  profile ? "release",
  # Keys for tests of images, made by keys.sh.
  keys ? throw "tests/nixos/keys.sh has made no keys",
}:
let
  path = text: /. + text;
  # In the form of a flake's input.
  upstream =
    let
      self = (import (path nixpkgs + "/flake.nix")).outputs { inherit self; } // {
        outPath = path nixpkgs;
        lastModifiedDate = "20241130";
        shortRev = "offline";
      };
    in
    self;

  pkgs = import (path nixpkgs) {
    system = "x86_64-linux";
    # No configuration or overlays except those in this file.
    config = { };
    overlays = [
      (import ./overlay.nix {
        list = path list;
        debs = path debs;
        crates = path crates;
        inherit rust;
      })
    ];
    stdenvStages = import ./stdenv.nix { nixpkgs = path nixpkgs; };
  };

  # An input of the flake has the name `crane` too.
  craneLib = path crane;

  inputs = rec {
    nixpkgs = upstream // {
      legacyPackages.x86_64-linux = pkgs;
      lib = upstream.lib.extend (
        _: previous: {
          nixosSystem =
            arguments:
            previous.nixosSystem (
              arguments
              // {
                modules =
                  arguments.modules
                  ++ [
                    { nixpkgs = { inherit pkgs; }; }
                    ./debian-paths.nix
                  ]
                  ++ lib.optional (programs != null) (import ./stand-in.nix { programs = path programs; });
              }
            );
        }
      );
    };
    inherit (nixpkgs) lib;
    crane.mkLib =
      pkgs:
      let
        # A development build takes less than half as long when dependencies are not optimised: none of its programs is
        # measured.
        profiled =
          arguments:
          arguments
          // lib.optionalAttrs (profile != "release") {
            CARGO_PROFILE = profile;
            cargoExtraArgs = "${
              arguments.cargoExtraArgs or "--locked"
            } --config 'profile.${profile}.package.\"*\".opt-level=0'";
          };
      in
      (import craneLib { inherit pkgs; }).overrideScope (
        _: previous: {
          buildDepsOnly = arguments: previous.buildDepsOnly (profiled arguments);
          # The toolchain is the machine's. None of its paths is in the store, so no reference has to be removed from
          # programs.
          buildPackage =
            arguments:
            previous.buildPackage (
              profiled arguments
              // {
                doNotRemoveReferencesToRustToolchain = true;
                # The wrapper of binutils sets these; stdenv.nix has no such wrapper.
                OBJCOPY = "objcopy";
                READELF = "readelf";
              }
            );
        }
      );
    # Not read.
    advisory-db = throw "tests/nixos checks no advisories";
    self = linerate // {
      outPath = ../..;
    };
  };
  linerate = (import ../../flake.nix).outputs {
    inherit (inputs)
      self
      nixpkgs
      crane
      advisory-db
      ;
  };
  template = (import ../../templates/host/flake.nix).outputs {
    inherit (inputs) nixpkgs;
    linerate = inputs.self;
  };

  hosts = linerate.nixosConfigurations // {
    # hosts/images.nix makes this from it, for its disk.
    installer = inputs.nixpkgs.lib.nixosSystem {
      modules = [
        (import ../../hosts/installer {
          label = "installer";
          target = linerate.nixosConfigurations.tengbe;
        })
      ];
    };
    template = template.nixosConfigurations.box;
  };

  # Hosts as guests of tests/portable.
  guests = {
    metal = linerate.nixosConfigurations.tengbe.extendModules {
      modules = [
        (import ../virtual.nix "ten")
        ../generations.nix
        ./guest.nix
      ];
    };
    serving = guests.metal.extendModules {
      modules = [
        ../serving.nix
        { generations = [ "changed" ]; }
      ];
    };
    cloud = linerate.nixosConfigurations.aws-c6i.extendModules {
      modules = [
        (import ../virtual.nix "ena")
        ./guest.nix
      ];
    };
    # The medium that installs metal onto a disk.
    medium = inputs.nixpkgs.lib.nixosSystem {
      modules = [
        (import ../../hosts/installer {
          label = "installer";
          target = guests.metal;
        })
        ./guest.nix
      ];
    };
  };

  # A host as an image, in versions that are updated to one another.
  appliance =
    { host, card }:
    version: module:
    linerate.nixosConfigurations.${host}.extendModules {
      modules = [
        (import ../virtual.nix card)
        ./guest.nix
        (import ../appliance.nix {
          inherit version;
          keys = path keys;
        })
        module
      ];
    };
  appliances = import ./appliances.nix {
    inherit pkgs;
    inherit (inputs) lib;
    appliance = appliance {
      host = "tengbe";
      card = "ten";
    };
    cloud = appliance {
      host = "aws-c6i";
      card = "ena";
    };
    keys = path keys;
  };
in
{
  inherit hosts pkgs;
  # The guests' disks.
  disks =
    inputs.lib.mapAttrs (_: (import ../../hosts/images.nix { inherit (inputs) lib; }).disk) guests
    // appliances;
  # The flake's own: images, and programs.
  packages = linerate.packages.x86_64-linux;
  toplevels = inputs.lib.mapAttrs (_: host: host.config.system.build.toplevel) (hosts // guests);
}
