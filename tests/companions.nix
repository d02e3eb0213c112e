# The host to try, with the third-party programs that our modules use: PostgreSQL beside the API, Litestream beside
# links, and a certificate from ACME for files. The machine `visitor` is the one outside the box.
{ lib, ... }:
{
  services.linerate = {
    api = {
      database.createLocally = true;
      # If every instruction is emulated, starting a session takes longer than anywhere else.
      settings = {
        database-url = "postgres://linerate-api@%2Frun%2Fpostgresql/linerate-api?connect_timeout=60";
        acquire-timeout = 60000;
        database-timeout = 60000;
      };
    };
    links.replica = {
      url = "sftp://root@visitor/root/links";
      key-path = "/var/lib/replica/key";
      sync-interval = "200ms";
    };
    files.tls = {
      certificate = lib.mkForce null;
      key = lib.mkForce null;
      acme = "box";
    };
  };

  security.acme = {
    acceptTerms = true;
    defaults = {
      email = "owner@box.example";
      server = "https://visitor:14000/dir";
    };
    # links has port 80; the test's authority asks here.
    certs.box.listenHTTP = ":5002";
  };
  networking.firewall.allowedTCPPorts = [ 5002 ];

  # It creates its files when it starts first, which takes minutes if every instruction is emulated and others are busy
  # too.
  systemd.services.postgresql.serviceConfig.TimeoutSec = lib.mkForce 2400;

  # Releases before 25.11 have a Litestream with a known vulnerability.
  nixpkgs.config.allowInsecurePredicate =
    package: lib.versionOlder lib.trivial.release "25.11" && lib.getName package == "litestream";
}
