# Options for a service's certificates: `services.linerate.NAME.tls`.
{ lib }:
# Those that are set.
cfg:
let
  inherit (lib) mkOption types;
  # A string, since a path would be copied into the store.
  path = types.strMatching "/.+";
  optionalPath = types.nullOr path;
in
{
  enable = mkOption {
    type = types.bool;
    readOnly = true;
    default = cfg.certificate != null || cfg.certificates != { } || cfg.acme != [ ];
    defaultText = lib.literalExpression "certificate != null || certificates != { } || acme != [ ]";
    description = "Whether the service has a certificate.";
  };

  certificate = mkOption {
    type = optionalPath;
    default = null;
    example = "/var/lib/certificates/chain.pem";
    description = ''
      The certificate and those that signed it, in PEM. systemd passes the file to the service when the service starts
      (`LoadCredential=`), so restart the service after you renew the certificate. Visitors get this certificate if they
      name no host, or a host without a certificate.
    '';
  };

  key = mkOption {
    type = optionalPath;
    default = null;
    example = "/var/lib/certificates/key.pem";
    description = "The certificate's private key, in PEM: a file on the host that only root can read.";
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
      More certificates; their names only determine their order. A visitor gets the certificate for the requested host
      or, if there are several, the first whose signatures the visitor accepts, so put ECDSA before RSA. The order is:
      `tls.certificate`, these, `tls.acme`.
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
      Names of certificates in `security.acme.certs`, which ACME renews. The service reads their files as a member of
      their group, and uses renewed certificates without a restart.
    '';
  };

  admin = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether the admin listener accepts only TLS, with the same certificates. `linerate doctor` then does not check
      whether the service is ready, and whatever scrapes its metrics must use `https`.
    '';
  };
}
