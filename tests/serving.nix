# A host that serves everything it can: links, files and api, with TLS too. The key isn't a secret: the certificate is
# only for localhost.
{ lib, pkgs, ... }:
let
  made = pkgs.runCommand "certificate" { nativeBuildInputs = [ pkgs.openssl ]; } ''
    mkdir $out
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 7300 -subj /CN=localhost \
      -addext subjectAltName=DNS:localhost -keyout $out/key.pem -out $out/chain.pem
  '';
  tls = {
    certificate = "${made}/chain.pem";
    key = "${made}/key.pem";
  };
  # If every instruction is emulated, and other machines run concurrently, everything takes long: so nothing is given up
  # early.
  patience = 300;
  patient = {
    head-timeout = patience;
    idle-timeout = patience;
    drain-timeout = patience;
  };
in
{
  services.linerate = {
    links = {
      inherit tls;
      settings = patient // {
        tls-listen = [ ":8444" ];
      };
    };
    files = {
      inherit tls;
      settings = patient // {
        tls-listen = [ ":8443" ];
        # What is read slowly should outlast all of that.
        drain-timeout = 12 * patience;
      };
    };
    api = {
      enable = true;
      openFirewall = true;
      settings = patient // {
        auth = "none";
        acquire-timeout = 1000 * patience;
        database-timeout = 1000 * patience;
      };
    };
  };
  systemd.services = lib.genAttrs [ "linerate-links" "linerate-files" "linerate-api" ] (_: {
    serviceConfig.WatchdogSec = patience;
  });
  # For clients that should trust it.
  environment.etc."certificate/chain.pem".source = tls.certificate;
}
