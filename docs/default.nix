# The manual as HTML.
{ lib, pkgs }:
let
  # Its pages are where what they describe is.
  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ./.
      (lib.fileset.fileFilter (file: file.hasExt "md" || file.hasExt "svg") ../.)
    ];
  };
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
