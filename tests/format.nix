# Every .nix file is formatted, and binds no name it does not use.
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
