# The standard environment: nixpkgs' own builder (pkgs/stdenv/generic, with stages as in the manual's chapter
# "Bootstrapping"), with programs from the building machine: Debian's bash, coreutils and gcc, instead of about 800
# things that would have to be fetched and compiled first. What it builds links against Debian 13's libraries in the
# store (`debian.nix`, `relink.sh`), so nothing from the machine is in a closure.
{ nixpkgs }:
{
  localSystem,
  config,
  overlays,
  ...
}:
let
  shell = "/bin/bash";

  environment =
    cc:
    import (nixpkgs + "/pkgs/stdenv/generic") {
      inherit cc config shell;
      buildPlatform = localSystem;
      hostPlatform = localSystem;
      targetPlatform = localSystem;
      # Each with `/bin` after it.
      initialPath = [
        "/usr/local"
        "/usr"
        "/"
      ];
      # Without a sandbox, Nix starts no build while the home directory that it names exists, and what cargo writes
      # would create it.
      preHook = "export PATH=$PATH:/usr/sbin:/sbin HOME=$NIX_BUILD_TOP";
      fetchurlBoot = _: throw "the standard environment fetches nothing";
    };

  withoutCompiler = environment null;

  # What the compiler wrapper is used for, without wrapping: the machine's programs under the usual names.
  compiler =
    withoutCompiler.mkDerivation {
      name = "cc-of-the-machine";
      buildCommand = ''
        mkdir -p $out/bin $out/nix-support
        for program in cc c++ gcc g++ ld ar as nm ranlib strip objcopy objdump readelf; do
          ln -s /usr/bin/$program $out/bin/
        done
        echo 'export CC=cc CXX=c++ LD=ld AR=ar AS=as NM=nm RANLIB=ranlib STRIP=strip' >$out/nix-support/setup-hook
      '';
    }
    // {
      targetPrefix = "";
      version = "12";
      isGNU = true;
      isClang = false;
      cc = compiler;
      libc = null;
      bintools = compiler // {
        isLLVM = false;
        dynamicLinker = "/lib64/ld-linux-x86-64.so.2";
        bintools = compiler;
      };
    };
in
[
  (_: {
    __raw = true;
    stdenv = withoutCompiler;
    stdenvNoCC = withoutCompiler;
    cc = compiler;
  })
  (previous: {
    inherit config overlays;
    stdenv = environment previous.cc;
  })
]
