# A host that serves all that it can: links, files and api, and what they have by TLS. The key is no secret: the certificate
# is for nobody's name but localhost's.
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
  # Where every instruction is emulated, and other machines are beside it, all takes long: nothing is given up for that.
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
        # What is read slowly is to outlast all of that.
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
  # For who is to trust it.
  environment.etc."certificate/chain.pem".source = tls.certificate;
}
