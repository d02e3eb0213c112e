# Additions to hosts that are tested as images: a version, and an update server in the box itself, under a name for
# which the tests have a certificate. `keys` is a directory made by tests/nixos/keys.sh.
{ keys, version }:
{
  config,
  lib,
  pkgs,
  ...
}:
{
  linerate.appliance.image = {
    enable = true;
    inherit version;
    storeMiB = 512;
    espMiB = 256;
    update = {
      source = "https://updates.example:8444/";
      key = keys + "/update.gpg";
      floor = "1";
    };
  };
  networking.hosts."127.0.0.1" = [ "updates.example" ];
  environment.etc."ssl/certs/ca-certificates.crt".source = lib.mkForce (keys + "/ca.pem");
  systemd.services.updates = {
    serviceConfig.ExecStart = lib.concatStringsSep " " [
      "${lib.getExe config.linerate.packages.files} serve --root /run/updates/served --listen 127.0.0.1:8445"
      "--tls-listen 127.0.0.1:8444 --cert ${keys}/server.pem --key ${keys}/server.key --no-http3 --admin 127.0.0.1:8446"
    ];
  };
  environment.systemPackages = [ pkgs.openssl ];
}
