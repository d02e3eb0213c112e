# Certificates for the services: from files on the host, or from ACME with security.acme.
{ config, lib, ... }:
let
  inherit (lib)
    concatLists
    mapAttrs'
    mapAttrsToList
    mkIf
    mkMerge
    mkOption
    types
    ;
  units = (import ../compatibility.nix { inherit lib; }).acme;
  issued = config.security.acme.certs;

  # The files that systemd passes as credentials, by the end of the credential's name.
  filesOf =
    tls:
    lib.optionalAttrs (tls.certificate != null) { "" = { inherit (tls) certificate key; }; }
    // mapAttrs' (host: lib.nameValuePair "-${host}") tls.certificates;

  # Where the service finds each pair. The first is for visitors who don't name a host.
  pairsOf =
    name: tls:
    let
      credentials = "/run/linerate-${name}/credentials";
    in
    mapAttrsToList (suffix: _: {
      cert = "${credentials}/certificate${suffix}";
      key = "${credentials}/key${suffix}";
    }) (filesOf tls)
    ++ map (host: {
      cert = "${issued.${host}.directory}/fullchain.pem";
      key = "${issued.${host}.directory}/key.pem";
    }) tls.acme;

  settingsOf =
    name:
    { settings, tls, ... }:
    let
      pairs = pairsOf name tls;
      each =
        what:
        let
          all = map (pair: pair.${what}) pairs;
        in
        if lib.length all == 1 then lib.head all else all;
    in
    # The service refuses a certificate that nothing uses.
    lib.optionalAttrs (pairs != [ ] && settings.tls-listen != [ ]) {
      cert = each "cert";
      key = each "key";
    }
    // lib.optionalAttrs tls.admin {
      admin-cert = each "cert";
      admin-key = each "key";
    };

  unitOf =
    tls:
    let
      files = filesOf tls;
    in
    mkMerge [
      (mkIf (files != { }) {
        serviceConfig.LoadCredential = concatLists (
          mapAttrsToList (suffix: pair: [
            "certificate${suffix}:${pair.certificate}"
            "key${suffix}:${pair.key}"
          ]) files
        );
      })
      (mkIf (tls.acme != [ ]) {
        wants = map units.wanted tls.acme;
        after = map units.first tls.acme;
        serviceConfig.SupplementaryGroups = lib.unique (map (host: issued.${host}.group) tls.acme);
      })
    ];

  assertionsOf =
    name: cfg:
    let
      option = "services.linerate.${name}";
      needed = "TLS needs a certificate, from tls.certificate and tls.key, from tls.certificates or from tls.acme.";
    in
    [
      {
        assertion = (cfg.tls.certificate != null) == (cfg.tls.key != null);
        message = "${option}.tls: a certificate and its key go together.";
      }
      {
        assertion = cfg.settings.tls-listen == [ ] || cfg.tls.enable;
        message = "${option}.settings.tls-listen: ${needed}";
      }
      {
        assertion = !cfg.tls.admin || cfg.tls.enable;
        message = "${option}.tls.admin: ${needed}";
      }
    ]
    ++ map (host: {
      assertion = issued ? ${host};
      message = "${option}.tls: security.acme.certs has no ${host}.";
    }) cfg.tls.acme
    ++ map (host: {
      assertion = builtins.match "[A-Za-z0-9._-]+" host != null;
      message = "${option}.tls.certificates: ${host} is to name a credential, so it may have letters, digits, dots, dashes and underscores alone.";
    }) (lib.attrNames cfg.tls.certificates);

  services = lib.mapAttrs (name: _: config.services.linerate.${name}) config.linerate.services;
in
{
  imports = [ ../shared.nix ];

  options.linerate.services = mkOption {
    type = types.attrsOf (
      types.submodule (
        { name, ... }:
        {
          derived = settingsOf name config.services.linerate.${name};
        }
      )
    );
  };

  config = {
    systemd.services = mapAttrs' (
      name: cfg: lib.nameValuePair "linerate-${name}" (unitOf cfg.tls)
    ) services;
    assertions = concatLists (mapAttrsToList assertionsOf services);
  };
}
