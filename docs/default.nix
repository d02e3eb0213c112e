# The manual as HTML.
{ lib, pkgs }:
let
  # Its pages are beside what they describe. Selected by suffixes and not as a fileset, which, with a Nix older than
  # 2.14, would look at what is beside the flake to find out what the flake is.
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
