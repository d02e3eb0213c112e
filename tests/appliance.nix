# What hosts have besides as images that are tested: a version, and a server of updates in the box itself, at a name that
# a certificate of the tests is for. `keys` is a directory as tests/nixos/keys.sh makes it.
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
  # udev takes long where every instruction is emulated, and a card has no name until then.
  linerate.appliance.health.patience = lib.mkDefault 300;
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
