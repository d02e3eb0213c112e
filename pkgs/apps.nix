# The commands of `nix run`.
{
  lib,
  pkgs,
  linerate,
  # Null on an architecture without one.
  vm,
}:
let
  app = description: program: {
    type = "app";
    inherit program;
    meta = { inherit description; };
  };
  script = name: text: "${pkgs.writeShellScriptBin name text}/bin/${name}";
in
{
  default = app "Run links, files, api and the console together, on embedded storage and loopback" (
    script "linerate-run" ''
      export PATH=${
        lib.makeBinPath [
          linerate.generic.api
          linerate.generic.files
          linerate.generic.links
        ]
      }:$PATH
      exec ${lib.getExe linerate.generic.linerate} up "$@"
    ''
  );

  bench = app "Print the comparison tables: bench [PACKAGE BENCH]" (
    script "linerate-bench" ''
      set -euo pipefail
      export PATH=${
        lib.makeBinPath [
          pkgs.cargo
          pkgs.rustc
          pkgs.stdenv.cc
          pkgs.nghttp2
          pkgs.nginx
          pkgs.postgresql
          pkgs.wrk
        ]
      }:$PATH
      # Copy the sources again, but keep cargo's target directory.
      work=''${XDG_CACHE_HOME:-$HOME/.cache}/linerate/bench
      mkdir -p "$work"
      rm -rf "$work/pkgs"
      cp -r --no-preserve=mode ${linerate.src} "$work/pkgs"
      export CARGO_TARGET_DIR=$work/target
      cd "$work/pkgs"
      bench() {
        cargo --config ${linerate.cargoHome}/config.toml bench --offline --locked --package "$1" --bench "$2"
      }
      if [ $# -eq 2 ]; then
        bench "$1" "$2"
        exit
      fi
      bench linerate-links redirect
      bench linerate-listener hello
      bench linerate-listener h3
      bench linerate-files transfer
    ''
  );

  # With today's advisories from the network; the check of the same name uses those in flake.lock.
  audit = app "Look for known vulnerabilities in what Cargo.lock names" (
    script "linerate-audit" "exec ${lib.getExe pkgs.cargo-audit} audit --file ${./Cargo.lock}"
  );
}
// lib.optionalAttrs (vm != null) {
  vm = app "Boot the appliance in QEMU" (lib.getExe vm);
}
