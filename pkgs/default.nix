# The workspace's programs, one set for each kind of CPU.
{
  advisory-db,
  crane,
  lib,
}:
pkgs:
let
  craneLib = crane.mkLib pkgs;
  workspace = (lib.importTOML ./Cargo.toml).workspace.package;

  # The value for `-C target-cpu`, by architecture. `native` would depend on the machine that builds.
  cpus =
    {
      x86_64 = {
        # AVX2, BMI and FMA: every x86-64 server since Haswell and Zen.
        generic = "x86-64-v3";
        # Amazon's c6i.
        icelake-server = "icelake-server";
        # Core i7-12700H and its relatives.
        alderlake = "alderlake";
      };
      aarch64 = {
        generic = "generic";
        # Graviton2: Amazon's c6g.
        neoverse-n1 = "neoverse-n1";
        # Graviton3: Amazon's c7g.
        neoverse-v1 = "neoverse-v1";
      };
    }
    .${pkgs.stdenv.hostPlatform.parsed.cpu.name};

  # Names, by directory. Each prints its own manuals and completions.
  programs = {
    api = "linerate-api";
    files = "linerate-files";
    # The operator's command line.
    linerate = "linerate";
    links = "linerate-links";
  };

  src = lib.fileset.toSource {
    root = ./.;
    fileset = lib.fileset.unions (
      [
        (lib.fileset.fileFilter (
          file:
          lib.any file.hasExt [
            "css"
            "html"
            "js"
            "json"
            "lock"
            "py"
            "rs"
            "sql"
            "svg"
            "toml"
            "txt"
          ]
          # It is compiled into the crate, so that its examples are tested.
          || file.name == "README.md"
        ) ./.)
      ]
      # Fuzz targets' seeds, which tests run through.
      ++ map (name: lib.fileset.maybeMissing (./. + "/${name}/fuzz/seeds")) (
        lib.attrNames (builtins.readDir ./.)
      )
    );
  };

  common = {
    inherit src;
    pname = "linerate";
    inherit (workspace) version;
    strictDeps = true;
  };

  # All programs for a kind of CPU, by one call of cargo: their dependencies are compiled once, not once for each.
  # `flags` are further ones for the compiler.
  builtFor =
    flags: cpu:
    let
      tuned = common // {
        pname = "linerate-programs";
        cargoExtraArgs =
          "--locked" + lib.concatMapStrings (name: " --package ${name}") (lib.attrValues programs);
        CARGO_BUILD_RUSTFLAGS = lib.concatStringsSep " " ([ "-C target-cpu=${cpu}" ] ++ flags);
        # With a target, cargo's flags are for the target alone: build scripts and macros run on the builder, which may
        # lack that CPU's instructions.
        CARGO_BUILD_TARGET = pkgs.stdenv.hostPlatform.rust.rustcTarget;
        # The line of each address, for `linerate profile` and backtraces.
        CARGO_PROFILE_RELEASE_DEBUG = "line-tables-only";
        CARGO_PROFILE_RELEASE_STRIP = "none";
        # The checks run the tests once. The builder may lack the CPU that this build is for.
        doCheck = false;
      };
    in
    craneLib.buildPackage (
      tuned
      // {
        # Without `cargo check`, which crane runs first and whose results nothing here uses.
        cargoArtifacts = craneLib.buildDepsOnly (tuned // { cargoCheckCommand = ":"; });
        # Line tables are separate, in the output `debug`, named by the digest that the linker leaves in the program.
        separateDebugInfo = true;
      }
    );

  # How often what ran in the services, for `-C profile-use`. Names of functions do not depend on the CPU, so one
  # profile is for all of them.
  profile =
    let
      instrumented = builtFor [ "-C profile-generate" ] cpus.generic;
      training = common // {
        pname = "linerate-training";
        cargoExtraArgs = "--locked --package linerate-training";
        CARGO_PROFILE = "dev";
        doCheck = false;
      };
      trained = craneLib.buildPackage (
        training
        // {
          cargoArtifacts = craneLib.buildDepsOnly (training // { cargoCheckCommand = ":"; });
        }
      );
    in
    pkgs.runCommand "linerate.profdata"
      {
        nativeBuildInputs = [
          pkgs.nghttp2
          pkgs.postgresql
          # It reads only the format that this rustc's runtime writes, and names both versions otherwise.
          pkgs.rustc.llvmPackages.llvm
          pkgs.wrk
        ];
      }
      ''
        ${lib.getExe' trained "linerate-training"} ${instrumented}/bin profiles
        llvm-profdata merge --output=$out profiles/*.profraw
      '';

  forCpu =
    flags: cpu:
    let
      built = builtFor flags cpu;
    in
    lib.mapAttrs (
      directory: name:
      pkgs.runCommandCC "${name}-${workspace.version}"
        {
          pname = name;
          inherit (workspace) version;
          outputs = [
            "out"
            "debug"
          ];
          strictDeps = true;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          # The generic build, for programs that run on the machine that builds the system.
          passthru.generic = sets.generic.${directory};
          meta = {
            inherit ((lib.importTOML (./. + "/${directory}/Cargo.toml")).package) description;
            license = lib.licenses.mit;
            mainProgram = name;
            # As in LICENSE.
            maintainers = [ { name = "linerate maintainers"; } ];
            platforms = [
              "aarch64-linux"
              "x86_64-linux"
            ];
          }
          # From pkgs/Cargo.toml, for both cargo and Nix. It names no homepage yet: there is no public address.
          // lib.optionalAttrs (workspace ? homepage) {
            inherit (workspace) homepage;
          };
        }
        (
          ''
            install -D --target-directory=$out/bin ${built}/bin/${name}
            id=$(readelf --notes $out/bin/${name} | sed -n 's/^ *Build ID: //p')
            install -D --mode=444 --target-directory=$debug/lib/debug/.build-id/''${id:0:2} \
              ${built.debug}/lib/debug/.build-id/''${id:0:2}/''${id:2}.debug
          ''
          # The generic program prints the manuals and completions for all builds, since the builder may not be able to
          # run the others.
          + (
            if cpu == cpus.generic then
              ''
                $out/bin/${name} man manuals
                gzip --best --no-name manuals/*
                installManPage manuals/*
                installShellCompletion --cmd ${name} \
                  --bash <($out/bin/${name} completions bash) \
                  --fish <($out/bin/${name} completions fish) \
                  --zsh <($out/bin/${name} completions zsh)
              ''
            else
              "cp --recursive ${sets.generic.${directory}}/share $out/share"
          )
        )
    ) programs;

  sets = lib.mapAttrs (_: forCpu [ ]) cpus;
  guided = lib.mapAttrs (_: forCpu [ "-C profile-use=${profile}" ]) cpus;

  # The names for users: linerate-links is the generic one, linerate-links-alderlake and linerate-links-guided aren't.
  named =
    suffix: cpu: set:
    lib.mapAttrs' (
      directory: package:
      lib.nameValuePair "${programs.${directory}}${lib.optionalString (cpu != "generic") "-${cpu}"}${suffix}" package
    ) set;
in
sets
// {
  inherit guided;

  all = lib.concatMapAttrs (named "") sets // lib.concatMapAttrs (named "-guided") guided;

  checks =
    let
      cargoArtifacts = craneLib.buildDepsOnly common;
      checked = common // {
        inherit cargoArtifacts;
      };
    in
    {
      clippy = craneLib.cargoClippy (
        checked // { cargoClippyExtraArgs = "--workspace --all-targets -- --deny warnings"; }
      );
      # What was known when flake.lock was written; `nix run .#audit` asks for today's.
      audit = craneLib.cargoAudit {
        inherit (common) src pname version;
        inherit advisory-db;
      };
      # Licences, sources and bans.
      deny = craneLib.cargoDeny { inherit (common) src pname version; };
      rustfmt = craneLib.cargoFmt { inherit (common) src pname version; };
      tests = craneLib.cargoTest (checked // { cargoTestExtraArgs = "--workspace --lib --bins"; });
      # The tests that run whole programs, except those that fetch other programs: `secure` of listener, files and links
      # uses clients from PyPI and the Go proxy, which a sandbox can't reach. By name and not by package: cargo chooses
      # the dependencies' features by package, and those of the whole workspace are built already.
      tests-processes = craneLib.cargoTest (
        checked
        // {
          cargoTestExtraArgs =
            "--workspace"
            + lib.concatMapStrings (test: " --test ${test}") [
              "admin"
              "apply"
              "batch_memory"
              "cli"
              "command"
              "doctor"
              "faults"
              "front"
              "import_memory"
              "process"
              "programs"
              "seeds"
              "survive"
              "up"
            ];
          nativeCheckInputs = [ pkgs.curl ];
        }
      );
    };

  # For running cargo outside of a sandbox: the sources, and where cargo finds their dependencies.
  inherit src;
  cargoHome = craneLib.vendorCargoDeps { inherit src; };

  shell = craneLib.devShell {
    packages = [
      pkgs.cargo-audit
      pkgs.cargo-deny
      pkgs.cargo-fuzz
      pkgs.curl
      pkgs.deadnix
      pkgs.gnumake
      pkgs.go
      pkgs.haproxy
      pkgs.nghttp2
      pkgs.nginx
      pkgs.nix
      pkgs.nixfmt
      pkgs.postgresql
      pkgs.python3
      pkgs.shellcheck-minimal
      pkgs.wrk
    ];
  };
}
