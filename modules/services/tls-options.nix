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
}
