# A service's certificates: from files on the host, or from ACME by security.acme.
{ config, lib }:
# The unit, and the service's options.
unit: cfg:
let
  inherit (lib) mkIf mkOption types;
  name = "services.linerate.${lib.removePrefix "linerate-" unit}";
  inherit (cfg.tls) acme certificate key;

  issued = lib.genAttrs acme (host: config.security.acme.certs.${host});
  credentials = "/run/credentials/${unit}.service";
  units = (import ../compatibility.nix { inherit lib; }).acme;

  path = types.strMatching "/.+";
  optionalPath = types.nullOr path;

  # What systemd hands over, by the name of the credential.
  files =
    lib.optionalAttrs (certificate != null) { "" = { inherit certificate key; }; }
    // lib.mapAttrs' (host: lib.nameValuePair "-${host}") cfg.tls.certificates;

  # Where the service finds each, the first being the one for visitors who ask for none.
  pairs =
    lib.mapAttrsToList (suffix: _: {
      cert = "${credentials}/certificate${suffix}";
      key = "${credentials}/key${suffix}";
    }) files
    ++ map (host: {
      cert = "${issued.${host}.directory}/fullchain.pem";
      key = "${issued.${host}.directory}/key.pem";
    }) acme;
  each =
    what:
    let
      all = map (pair: pair.${what}) pairs;
    in
    if lib.length all == 1 then lib.head all else all;
in
{
  options = {
    enable = mkOption {
      type = types.bool;
      readOnly = true;
      default = pairs != [ ];
      defaultText = lib.literalExpression "certificate != null || certificates != { } || acme != [ ]";
      description = "Whether there is a certificate.";
    };

    certificate = mkOption {
      type = optionalPath;
      default = null;
      example = "/var/lib/certificates/chain.pem";
      description = ''
        The certificate and those that signed it, in PEM. systemd hands it over when the service starts
        (`LoadCredential=`), so restart it when the certificate was renewed. It is the one for visitors who ask for no host,
        or for one that no other is for.
      '';
    };

    key = mkOption {
      type = optionalPath;
      default = null;
      example = "/var/lib/certificates/key.pem";
      description = "The certificate's private key, in PEM: a file on the host, readable by root alone.";
    };

    certificates = mkOption {
      type = types.attrsOf (
        types.submodule {
          options = {
            certificate = mkOption {
              type = path;
              example = "/var/lib/certificates/other/chain.pem";
              description = "As `tls.certificate`.";
            };
            key = mkOption {
              type = path;
              example = "/var/lib/certificates/other/key.pem";
              description = "As `tls.key`.";
            };
          };
        }
      );
      default = { };
      example = {
        "files.example" = {
          certificate = "/var/lib/certificates/files.example/chain.pem";
          key = "/var/lib/certificates/files.example/key.pem";
        };
      };
      description = ''
        More certificates, by names that are of no consequence but for their order. A visitor is shown the one that is for
        the host that is asked for and, where several are, the first whose signatures it takes: one by ECDSA may stand
        before one by RSA. Those of `tls.certificate` come first, those of `tls.acme` last.
      '';
    };

    acme = mkOption {
      type = types.coercedTo (types.nullOr types.str) (host: lib.optional (host != null) host) (
        types.listOf types.str
      );
      default = [ ];
      example = [
        "files.example"
        "other.example"
      ];
      description = ''
        The name in `security.acme.certs` of a certificate that renews itself, or several. The service reads it where ACME
        puts it, as a member of its group, and takes a renewed one without a restart.
      '';
    };

    admin = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether operators are answered by TLS too, and by nothing else, with the same certificates. Nobody then asks the
        service for the profile whether it is ready, and what scrapes its metrics has to ask by `https`.
      '';
    };
  };

  settings =
    lib.optionalAttrs (pairs != [ ]) {
      cert = each "cert";
      key = each "key";
    }
    // lib.optionalAttrs cfg.tls.admin {
      admin-cert = each "cert";
      admin-key = each "key";
    };

  config = {
    systemd.services.${unit} = lib.mkMerge [
      (mkIf (files != { }) {
        serviceConfig.LoadCredential = lib.concatLists (
          lib.mapAttrsToList (suffix: pair: [
            "certificate${suffix}:${pair.certificate}"
            "key${suffix}:${pair.key}"
          ]) files
        );
      })
      (mkIf (acme != [ ]) {
        wants = map units.wanted acme;
        after = map units.first acme;
        serviceConfig.SupplementaryGroups = lib.unique (map (host: issued.${host}.group) acme);
      })
    ];

    assertions = [
      {
        assertion = (certificate != null) == (key != null);
        message = "${name}.tls: a certificate and its key go together.";
      }
      {
        assertion = cfg.settings.tls-listen == [ ] || cfg.tls.enable;
        message = "${name}.settings.tls-listen: TLS needs a certificate, from tls.certificate and tls.key, from tls.certificates or from tls.acme.";
      }
      {
        assertion = !cfg.tls.admin || cfg.tls.enable;
        message = "${name}.tls.admin: TLS needs a certificate, from tls.certificate and tls.key, from tls.certificates or from tls.acme.";
      }
    ]
    ++ map (host: {
      assertion = config.security.acme.certs ? ${host};
      message = "${name}.tls: security.acme.certs has no ${host}.";
    }) acme
    ++ map (host: {
      assertion = builtins.match "[A-Za-z0-9._-]+" host != null;
      message = "${name}.tls.certificates: ${host} is to name a credential, so it may have letters, digits, dots, dashes and underscores alone.";
    }) (lib.attrNames cfg.tls.certificates);
  };
}
