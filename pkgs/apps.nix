# What `nix run` can do.
{
  lib,
  pkgs,
  linerate,
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
  default = app "Serve links on an embedded database, and print its addresses and a token" (
    script "linerate-run" ''exec ${lib.getExe linerate.generic.links} serve --print-token "$@"''
  );

  vm = app "Boot the appliance in QEMU" (lib.getExe vm);

  # No check: the advisories come from the network.
  audit = app "Look for known vulnerabilities in what Cargo.lock names" (
    script "linerate-audit" "exec ${lib.getExe pkgs.cargo-audit} audit --file ${./Cargo.lock}"
  );
}
