# The manual as HTML.
{ lib, pkgs }:
let
  # Its pages are where what they describe is. By suffixes and not as a fileset, which would look at what is beside the
  # flake to tell what the flake is, with a Nix older than 2.14.
  src = lib.sources.sourceFilesBySuffices ../. [
    ".md"
    ".py"
    ".svg"
    ".toml"
  ];
in
pkgs.runCommand "linerate-docs"
  {
    nativeBuildInputs = [
      pkgs.mdbook
      pkgs.python3
    ];
  }
  ''
    python3 -B ${src}/docs/book.py build $out
  ''
