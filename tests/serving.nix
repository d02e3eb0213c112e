# A host that serves everything it can: links, files and api, with TLS too. The key isn't a secret: the certificate is
# only for localhost.
{ pkgs, ... }:
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
in
{
  imports = [ ./patient.nix ];

  services.linerate = {
    links = {
      inherit tls;
      settings.tls-listen = [ ":8444" ];
    };
    files = {
      inherit tls;
      settings = {
        tls-listen = [ ":8443" ];
        # Slow readers should finish within this time.
        drain-timeout = 3600;
      };
    };
    api = {
      enable = true;
      openFirewall = true;
      settings.auth = "none";
    };
  };
  # For clients that should trust it.
  environment.etc."certificate/chain.pem".source = tls.certificate;
}
