# One box of several before a PostgreSQL at `store.example`, with its standby at another port: links and api keep all that is
# theirs there, by TLS, and who spreads visitors over boxes asks each whether it is ready. Password and keys are no secrets:
# that database is a test's.
{ lib, pkgs, ... }:
let
  # Who has signed for the store, and what it shows.
  made = pkgs.runCommand "store" { nativeBuildInputs = [ pkgs.openssl ]; } ''
    new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl req -x509 $new -days 7300 -subj "/CN=the store's CA" -keyout ca.key -out ca.pem
    openssl req $new -subj /CN=store.example -keyout key.pem -out request
    openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 7300 -out chain.pem \
      -extfile <(echo subjectAltName=DNS:store.example)
    mkdir $out
    mv ca.pem key.pem chain.pem $out
  '';
  # Where every instruction is emulated, a session takes longer to begin than anywhere else.
  url =
    name:
    "postgres://${name}:${name}@store.example,store.example:5433/${name}"
    + "?sslrootcert=ca.pem&connect_timeout=60";
  files."ca.pem" = "/etc/store/ca.pem";
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
      secrets.database = "/etc/store/links";
      database = { inherit files; };
      settings = patient // {
        admin = ":8081";
      };
    };
    files.settings = patient;
    api = {
      enable = true;
      openFirewall = true;
      secrets.database-url = "/etc/store/api";
      database = { inherit files; };
      settings = patient // {
        auth = "none";
        acquire-timeout = 1000 * patience;
        database-timeout = 1000 * patience;
      };
    };
  };
  linerate.fleet.address = {
    nlb.enable = true;
    # In milliseconds: to be asked ten times a second is much of what an emulated CPU can do.
    every = 2000;
  };
  # Links are made from another machine too.
  networking.firewall.allowedTCPPorts = [ 8081 ];
  systemd.services = lib.genAttrs [ "linerate-links" "linerate-files" "linerate-api" ] (_: {
    serviceConfig.WatchdogSec = patience;
  });

  environment.etc = {
    "store/links".text = url "links";
    "store/api".text = url "api";
  }
  # For who is to trust it, and for the store itself.
  // lib.genAttrs [ "store/ca.pem" "store/chain.pem" "store/key.pem" ] (name: {
    source = "${made}/${baseNameOf name}";
  });

  networking.hosts."192.168.1.2" = [ "store.example" ];
  # As machine 3 of a test has it; guest.nix has that of machine 1.
  systemd.network.networks."05-third" = {
    matchConfig.PermanentMACAddress = "52:54:00:00:03:01";
    networkConfig = {
      Address = "192.168.1.3/24";
      LinkLocalAddressing = "no";
      IPv6AcceptRA = false;
    };
  };
}
