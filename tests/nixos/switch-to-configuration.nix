# NixOS's program that switches to a new generation, from nixpkgs' source. Its one dependency from a repository is taken
# from the registry: the same version, with the same feature. And it gives systemd more than 5 s to answer, which is
# short if every instruction is emulated and the box is also serving.
{
  dbus-dev,
  interfaces,
  lib,
  pkg-config,
  rustPlatform,
  source,
  writeText,
}:
let
  lock = lib.concatMapStringsSep "\n" (
    line:
    if lib.hasInfix "git+https://github.com/zonyitoo/rust-ini" line then
      ''
        source = "registry+https://github.com/rust-lang/crates.io-index"
        checksum = "4e310ef0e1b6eeb79169a1171daf9abcb87a2e17c03bee2c4bb100b55c75409f"''
    else
      line
  ) (lib.splitString "\n" (lib.readFile (source + "/Cargo.lock")));
in
rustPlatform.buildRustPackage {
  pname = "switch-to-configuration";
  version = "0.1.0";
  src = source;
  cargoLock.lockFileContents = lock;
  postPatch = ''
    cp ${writeText "Cargo.lock" lock} Cargo.lock
    sed -i 's/^rust-ini = .*/rust-ini = { version = "=0.21.1", features = [/' Cargo.toml
    sed -i 's/Duration::from_millis(5000)/Duration::from_secs(120)/' src/main.rs
  '';
  nativeBuildInputs = [ pkg-config ];
  env = {
    PKG_CONFIG_PATH = "${dbus-dev}/lib/pkgconfig";
    SYSTEMD_DBUS_INTERFACE_DIR = "${interfaces}/share/dbus-1/interfaces";
  };
  meta.mainProgram = "switch-to-configuration";
}
