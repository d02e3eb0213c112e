# One of several boxes with a PostgreSQL at `store.example`, which has a standby at another port: links and api keep
# everything there, with TLS, and a balancer that spreads visitors over the boxes asks each whether it is ready.
# Password and keys aren't secrets, since the database only belongs to a test.
{ lib, pkgs, ... }:
let
  # The store's certificate authority, and its certificate.
  made = pkgs.runCommand "store" { nativeBuildInputs = [ pkgs.openssl ]; } ''
    new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl req -x509 $new -days 7300 -subj "/CN=the store's CA" -keyout ca.key -out ca.pem
    openssl req $new -subj /CN=store.example -keyout key.pem -out request
    openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 7300 -out chain.pem \
      -extfile <(echo subjectAltName=DNS:store.example)
    mkdir $out
    mv ca.pem key.pem chain.pem $out
  '';
  # If every instruction is emulated, starting a session takes longer than anywhere else.
  url =
    name:
    "postgres://${name}:${name}@store.example,store.example:5433/${name}"
    + "?sslrootcert=ca.pem&connect_timeout=60";
  files."ca.pem" = "/etc/store/ca.pem";
  # A balancer keeps connections to a box that is drained until they have been idle for so long.
  idle-timeout = 100;
in
{
  imports = [ ./patient.nix ];

  services.linerate = {
    links = {
      secrets.database = "/etc/store/links";
      database = { inherit files; };
      settings = {
        inherit idle-timeout;
        admin = ":8081";
      };
    };
    api = {
      enable = true;
      openFirewall = true;
      secrets.database-url = "/etc/store/api";
      database = { inherit files; };
      settings = {
        inherit idle-timeout;
        auth = "none";
      };
    };
  };
  linerate.fleet.address = {
    nlb.enable = true;
    # In milliseconds. Ten checks a second would take much of an emulated CPU's time.
    every = 2000;
  };
  # Links are created from another machine too.
  networking.firewall.allowedTCPPorts = [ 8081 ];

  environment.etc = {
    "store/links".text = url "links";
    "store/api".text = url "api";
  }
  # For clients that should trust it, and for the store itself.
  // lib.genAttrs [ "store/ca.pem" "store/chain.pem" "store/key.pem" ] (name: {
    source = "${made}/${baseNameOf name}";
  });

  networking.hosts."192.168.1.2" = [ "store.example" ];
  # As for machine 3 of a test; guest.nix has the same for machine 1.
  systemd.network.networks."05-third" = {
    matchConfig.PermanentMACAddress = "52:54:00:00:03:01";
    networkConfig = {
      Address = "192.168.1.3/24";
      LinkLocalAddressing = "no";
      IPv6AcceptRA = false;
    };
  };
}
