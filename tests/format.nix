# Every .nix file is formatted, and binds no unused names.
{ pkgs }:
pkgs.runCommand "linerate-nix-format"
  {
    nativeBuildInputs = [
      pkgs.deadnix
      pkgs.nixfmt
    ];
  }
  ''
    find ${../.} -name '*.nix' -exec nixfmt --check {} +
    deadnix --fail ${../.}
    touch $out
  ''
