# nixpkgs' packages made from Debian 13's, whose names, versions and hashes are in a list such as debian.txt.
{
  lib,
  stdenvNoCC,
  list,
  # The directory of their files.
  debs,
  # The shell that runs their scripts.
  shell,
}:
let
  pinned = lib.listToAttrs (
    map
      (
        line:
        let
          columns = lib.splitString " " line;
          column = lib.elemAt columns;
        in
        lib.nameValuePair (column 0) {
          version = column 1;
          sha256 = column 2;
          needs = if column 3 == "-" then [ ] else lib.splitString "," (column 3);
        }
      )
      (
        lib.filter (line: line != "" && !lib.hasPrefix "#" line) (lib.splitString "\n" (lib.readFile list))
      )
  );
  names = lib.attrNames pinned;
  known = name: pinned.${name} or (throw "debian.txt does not have ${name}");

  # A file whose hash is given isn't fetched: Nix takes it from this path, or fails.
  source =
    name:
    let
      package = known name;
    in
    builtins.path {
      name = "${name}.deb";
      path = debs + "/${name}_${lib.replaceStrings [ ":" ] [ "-" ] package.version}.deb";
      recursive = false;
      inherit (package) sha256;
    };

  # 1:2.41-12+deb13u1 is 2.41.
  upstream = name: lib.elemAt (builtins.match "([0-9]+:)?([0-9A-Za-z.]+).*" (known name).version) 1;

  make =
    {
      name,
      packages,
      needs,
      loader,
      # Libraries that it opens by name.
      opens ? [ ],
      # Shell commands, after the files are in place.
      fix ? "",
      # The interpreter of its scripts.
      interpreter ? "/bin/sh",
    }:
    stdenvNoCC.mkDerivation {
      pname = name;
      version = upstream (lib.head packages);
      debs = map source packages;
      libraries = needs;
      openedLibraries = opens;
      inherit loader;
      inherit interpreter;
      postUnpack = fix;
      buildCommandPath = ./unpack.sh;
      preferLocalBuild = true;
    };

  # The C library together with gcc's, since they depend on each other.
  glibc = make {
    name = "glibc";
    packages = [
      "libc6"
      "libgcc-s1"
    ];
    needs = [ ];
    # Debian's are relocatable as they are.
    loader = "";
  };
  loader = "${glibc}/lib/ld-linux-x86-64.so.2";

  # What systemd opens by name, which no file's header lists: modules, compressed journals and coredumps, sealed
  # credentials. Its library does so, and the loader uses that library's header.
  openedBySystemd = map (name: libraries.${name}) [
    "libkmod2"
    "liblz4-1"
    "liblzma5"
    "libzstd1"
  ];

  # By Debian's name: each a separate store path, so that a closure has what is linked against and nothing else.
  libraries =
    lib.mapAttrs (
      name: _:
      make {
        inherit loader name;
        packages = [ name ];
        needs = needsOf [ name ];
        opens = lib.optionals (name == "libsystemd-shared") openedBySystemd;
      }
    ) pinned
    // {
      libc6 = glibc;
      libgcc-s1 = glibc;
    };

  # Everything that these packages may be linked against.
  needsOf =
    packages:
    let
      closure = lib.genericClosure {
        startSet = map (key: { inherit key; }) (lib.concatMap (name: (known name).needs) packages);
        operator = { key }: lib.optionals (key != "libc6") (map (key: { inherit key; }) (known key).needs);
      };
    in
    lib.unique (map ({ key }: libraries.${key}) (lib.filter ({ key }: !lib.elem key packages) closure));
in
rec {
  inherit
    glibc
    libraries
    loader
    names
    openedBySystemd
    source
    upstream
    ;

  # nixpkgs splits a package into outputs, and lets modules change how it is built. Here an output is the whole package,
  # and such changes have no effect.
  whole =
    derivation: attributes:
    let
      self =
        derivation
        // lib.genAttrs [
          "bin"
          "lib"
          "dev"
          "out"
          "man"
          "doc"
          "info"
          "debug"
        ] (_: self)
        // {
          override = _: self;
          overrideAttrs = _: self;
          meta = {
            mainProgram = derivation.pname or derivation.name;
            platforms = lib.platforms.linux;
            badPlatforms = [ ];
          };
        }
        // attributes;
    in
    self;

  # NAME of nixpkgs, made from these packages. Modules read the attributes.
  package =
    name: packages:
    {
      attributes ? { },
      opens ? [ ],
      ...
    }@arguments:
    whole (make (
      removeAttrs arguments [ "attributes" ]
      // {
        inherit loader name packages;
        interpreter = arguments.interpreter or shell;
        needs = needsOf packages ++ opens;
      }
    )) attributes;
}
