# A service's certificate: from files on the host, or from ACME by security.acme.
{ config, lib }:
# The unit, and the service's options.
unit: cfg:
let
  inherit (lib) mkIf mkOption types;
  name = "services.linerate.${lib.removePrefix "linerate-" unit}";
  inherit (cfg.tls) acme certificate key;

  issued = config.security.acme.certs.${acme};
  credentials = "/run/credentials/${unit}.service";
  # 25.11 renamed the units of security.acme: since then this one ends with a certificate, self-signed at first.
  renamed = lib.versionAtLeast lib.trivial.release "25.11";
in
{
  options = {
    enable = mkOption {
      type = types.bool;
      readOnly = true;
      default = certificate != null || acme != null;
      defaultText = lib.literalExpression "certificate != null || acme != null";
      description = "Whether there is a certificate.";
    };

    certificate = mkOption {
      type = types.nullOr (types.strMatching "/.+");
      default = null;
      example = "/var/lib/certificates/chain.pem";
      description = ''
        The certificate and those that signed it, in PEM. systemd hands it over when the service starts
        (`LoadCredential=`), so restart it when the certificate was renewed.
      '';
    };

    key = mkOption {
      type = types.nullOr (types.strMatching "/.+");
      default = null;
      example = "/var/lib/certificates/key.pem";
      description = "The certificate's private key, in PEM: a file on the host, readable by root alone.";
    };

    acme = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "files.example";
      description = ''
        The name in `security.acme.certs` of a certificate that renews itself. The service reads it where ACME
        puts it, as a member of its group, and takes a renewed one without a restart.
      '';
    };
  };

  settings =
    if acme != null then
      {
        cert = "${issued.directory}/fullchain.pem";
        key = "${issued.directory}/key.pem";
      }
    else
      lib.optionalAttrs (certificate != null) {
        cert = "${credentials}/certificate";
        key = "${credentials}/key";
      };

  config = {
    systemd.services.${unit} = lib.mkMerge [
      (mkIf (certificate != null) {
        serviceConfig.LoadCredential = [
          "certificate:${certificate}"
          "key:${key}"
        ];
      })
      (mkIf (acme != null) {
        wants = [ (if renamed then "acme-${acme}.service" else "acme-finished-${acme}.target") ];
        after = [ (if renamed then "acme-${acme}.service" else "acme-selfsigned-${acme}.service") ];
        serviceConfig.SupplementaryGroups = [ issued.group ];
      })
    ];

    assertions = [
      {
        assertion = (certificate != null) == (key != null);
        message = "${name}.tls: a certificate and its key go together.";
      }
      {
        assertion = acme == null || certificate == null;
        message = "${name}.tls: a certificate comes from files or from ACME, not from both.";
      }
      {
        assertion = acme == null || config.security.acme.certs ? ${acme};
        message = "${name}.tls: security.acme.certs has no ${toString acme}.";
      }
      {
        assertion = cfg.settings.tls-listen == [ ] || cfg.tls.enable;
        message = "${name}.settings.tls-listen: TLS needs a certificate, from tls.certificate and tls.key or from tls.acme.";
      }
    ];
  };
}
