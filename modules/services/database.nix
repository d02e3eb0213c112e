# A service's database: its own file, PostgreSQL on this host, or wherever a URL points. The service's `setting` names
# it.
{ config, lib }:
name: setting:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.linerate.${name};
  option = "services.linerate.${name}";
  local = cfg.database.createLocally;
  secret = cfg.secrets ? ${setting};
  # PostgreSQL admits the user with the same name.
  user = "linerate-${name}";
  url = cfg.settings.${setting};
  # Whether the database is PostgreSQL on another host, or a secret contains its URL.
  remote =
    secret
    ||
      url != null
      && lib.hasPrefix "postgres" url
      && builtins.match "[a-z]+://([^@/]*@)?(%2F|localhost|127[.]|\\[::1]|[/?]).*" url == null;
  # The path of the database's file, or null. Without a scheme, `keyword=value` names a server too.
  sqlite =
    let
      named = builtins.match "sqlite:(//)?(.*)" url;
    in
    if url == null then
      null
    else if named != null then
      lib.last named
    else if lib.hasPrefix "/" url || builtins.match ".*(=|://).*" url == null then
      url
    else
      null;
  # The sandbox lets the service write to its own directory alone.
  elsewhere = sqlite != null && !lib.hasPrefix "/var/lib/${user}/" sqlite;
  directories = lib.optional elsewhere (dirOf sqlite);
  hidden = import ./hidden.nix { inherit lib; };
  compatibility = import ../compatibility.nix { inherit lib; };
  inherit (compatibility) postgresql;
  # A host may have changed the sandbox.
  inherit (config.systemd.services.${user}) serviceConfig;
in
{
  # The setting's default: `file`, unless PostgreSQL is asked for.
  default =
    file:
    if local then
      "postgres://${user}@%2Frun%2Fpostgresql/${user}"
    else if secret then
      null
    else
      file;

  options = {
    files = mkOption {
      # Strings, since paths would be copied into the store.
      type = types.attrsOf (types.strMatching "/.+");
      default = { };
      example = {
        "db.pem" = "/var/lib/secrets/db.pem";
      };
      description = ''
        Files for the names in the database's URL, such as `sslrootcert=db.pem`, `sslcert`, `sslkey` and `passfile`.
        systemd passes them to the service as credentials, so only root needs to be able to read them.
      '';
    };

    createLocally = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether this host runs a PostgreSQL server for the service, on a Unix socket only. The server identifies the
        service by its user, without a password.
      '';
    };
  };

  # What the health check needs to know about it.
  databases = {
    urls = lib.optional (remote && url != null) url;
    files = lib.optional secret cfg.secrets.${setting};
  };

  # For the service's unit.
  unit = {
    # Waits until roles and databases exist, or until there is a route to the database's host.
    wants = lib.optional local postgresql ++ lib.optional remote "network-online.target";
    after = lib.optional local postgresql ++ lib.optional remote "network-online.target";
    unitConfig.RequiresMountsFor = directories;
    serviceConfig = {
      LoadCredential = lib.mapAttrsToList (file: path: "${file}:${path}") cfg.database.files;
      ReadWritePaths = directories;
    };
  };

  # For PostgreSQL itself and its unit.
  server = mkIf local {
    enable = true;
    ensureDatabases = [ user ];
    ensureUsers = [
      {
        name = user;
        ensureDBOwnership = true;
      }
    ];
  };
  serverUnit = mkIf local { serviceConfig = compatibility.postgresqlRestart; };

  assertions = [
    {
      assertion = !(local && secret);
      message = "${option}: the local database needs no secret; take database.createLocally or secrets.${setting}.";
    }
    {
      # Before the host, as a parameter of the URL, or as a keyword.
      assertion =
        url == null
        ||
          builtins.match "[^/]*//[^@/]*:[^@/]*@.*" url == null
          && builtins.match "(.*[?&[:space:]])?password[[:space:]]*=.*" url == null;
      message = "${option}.settings.${setting}: everybody on the host could read its password; give the URL by ${option}.secrets.${setting}.";
    }
  ]
  ++ lib.optional elsewhere {
    assertion =
      lib.hasPrefix "/" sqlite
      && dirOf sqlite != "/"
      && (!hidden.home sqlite || serviceConfig.ProtectHome == false)
      && (!hidden.temporary sqlite || serviceConfig.PrivateTmp == false);
    message = "${option}.settings.${setting}: the service could not write ${sqlite}; give the absolute path of a file in a directory that is not / and not below /home, /root, /run/user, /tmp or /var/tmp.";
  };
}
