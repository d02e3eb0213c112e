# The workspace's programs, one set for each kind of CPU.
{ crane, lib }:
pkgs:
let
  craneLib = crane.mkLib pkgs;

  # What `-C target-cpu` is given. `native` would depend on the machine that builds.
  cpus = {
    # AVX2, BMI and FMA: every x86-64 server since Haswell and Zen.
    generic = "x86-64-v3";
    # Amazon's c6i.
    icelake-server = "icelake-server";
    # Core i7-12700H and its relatives.
    alderlake = "alderlake";
  };

  programs = [
    "links"
    "files"
  ];

  src = lib.fileset.toSource {
    root = ./.;
    fileset = lib.fileset.fileFilter (
      file:
      lib.any file.hasExt [
        "rs"
        "toml"
        "lock"
        "py"
      ]
      # Compiled in, so that its examples are tested.
      || file.name == "README.md"
    ) ./.;
  };

  common = {
    inherit src;
    pname = "linerate";
    inherit ((lib.importTOML ./Cargo.toml).workspace.package) version;
    strictDeps = true;
  };

  forCpu =
    cpu:
    let
      tuned = common // {
        CARGO_BUILD_RUSTFLAGS = "-C target-cpu=${cpu}";
        # The tests run once, in the checks, and not for a CPU that the builder may not have.
        doCheck = false;
      };
      # Built once for each CPU, however many programs there are.
      cargoArtifacts = craneLib.buildDepsOnly tuned;
    in
    lib.genAttrs programs (
      program:
      craneLib.buildPackage (
        tuned
        // {
          inherit cargoArtifacts;
          pname = "linerate-${program}";
          cargoExtraArgs = "--locked --package linerate-${program}";
          nativeBuildInputs = [ pkgs.installShellFiles ];
          # The program describes itself; the generic one does, since the builder may lack the CPU of another.
          postInstall =
            if cpu == cpus.generic then
              ''
                mkdir manuals
                $out/bin/linerate-${program} man manuals
                installManPage manuals/*
                installShellCompletion --cmd linerate-${program} \
                  --bash <($out/bin/linerate-${program} completions bash) \
                  --fish <($out/bin/linerate-${program} completions fish) \
                  --zsh <($out/bin/linerate-${program} completions zsh)
              ''
            else
              "cp -r ${sets.generic.${program}}/share $out/share";
          # For what has to run where the system is built.
          passthru.generic = sets.generic.${program};
          meta = {
            inherit ((lib.importTOML (./. + "/${program}/Cargo.toml")).package) description;
            license = lib.licenses.mit;
            mainProgram = "linerate-${program}";
            platforms = [ "x86_64-linux" ];
          };
        }
      )
    );

  sets = lib.mapAttrs (_: forCpu) cpus;

  # As users name them: linerate-links is the generic one, linerate-links-alderlake is not.
  named =
    cpu: set:
    lib.mapAttrs' (
      program: package:
      lib.nameValuePair "linerate-${program}${lib.optionalString (cpu != "generic") "-${cpu}"}" package
    ) set;
in
sets
// {
  all = lib.concatMapAttrs named sets;

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
      rustfmt = craneLib.cargoFmt { inherit (common) src pname version; };
      # Without the listener's interop tests: they fetch a client from PyPI, which a sandbox cannot.
      tests = craneLib.cargoTest (
        checked
        // {
          cargoTestExtraArgs = "--workspace --exclude linerate-listener";
          nativeCheckInputs = [
            pkgs.curl
            pkgs.python3
          ];
        }
      );
      tests-listener = craneLib.cargoTest (
        checked // { cargoTestExtraArgs = "--package linerate-listener --lib"; }
      );
    };

  shell = craneLib.devShell {
    packages = [
      pkgs.cargo-audit
      pkgs.curl
      pkgs.gnumake
      pkgs.nginx
      pkgs.nixfmt
      pkgs.python3
      pkgs.wrk
    ];
  };
}
