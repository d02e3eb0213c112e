# Settings of services from an EC2 instance's user data, so that many instances can use one image. Lines such as
#
#   LINERATE_LINKS_PUBLIC_URL=https://go.example
#
# become the environment of the service they name, and NixOS takes the host's key from SSH_HOST_ED25519_KEY; any other
# line is ignored with a message, and nothing is executed. Every process on the instance can read user data, so secrets
# do not belong there.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.linerate.appliance;
  services = lib.attrNames config.linerate.services;

  unit = "linerate-user-data.service";
  directory = "/run/linerate-user-data";
in
{
  options.linerate.appliance.userData = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether the services take settings from the instance's user data, which NixOS fetches by IMDSv2. These override
      the configuration's.
    '';
  };

  config = mkIf (cfg.enable && cfg.userData) {
    systemd.services =
      lib.genAttrs (map (name: "linerate-${name}") services) (daemon: {
        wants = [ unit ];
        after = [ unit ];
        serviceConfig.EnvironmentFile = "-${directory}/${lib.removePrefix "linerate-" daemon}";
      })
      // {
        linerate-user-data = {
          description = "Settings from the instance's user data";
          wants = [ "fetch-ec2-metadata.service" ];
          after = [ "fetch-ec2-metadata.service" ];
          path = [
            pkgs.gnugrep
            pkgs.gnused
          ];
          # A switch reloads the services after it has stopped units and before it starts them again: the files have to
          # be there meanwhile.
          stopIfChanged = false;
          serviceConfig = import ../sandbox.nix { } // {
            Type = "oneshot";
            RemainAfterExit = true;
            RuntimeDirectory = baseNameOf directory;
            RuntimeDirectoryPreserve = true;
            PrivateNetwork = true;
            RestrictAddressFamilies = "none";
            SystemCallFilter = [
              "@system-service"
              "~@privileged @resources"
            ];
          };
          script = ''
            userData=/etc/ec2-metadata/user-data
            # What an earlier run wrote is overwritten even if there is nothing any more.
            [ -s "$userData" ] || userData=/dev/null
            for service in ${toString services}; do
              variable="LINERATE_''${service^^}_[A-Z0-9_]+=[[:print:]]*"
              # systemd's files of variables have quotes and escapes, so both are escaped here: values are taken literally.
              grep --text --extended-regexp --line-regexp "$variable" "$userData" |
                sed 's/[\\"]/\\&/g; s/=/="/; s/$/"/' > "${directory}/$service" || true
            done
            ignored=$(grep --text --count --extended-regexp --invert-match --line-regexp \
              'LINERATE_(${
                lib.concatMapStringsSep "|" lib.toUpper services
              })_[A-Z0-9_]+=[[:print:]]*|SSH_HOST_.*|#.*|' "$userData" || true)
            [ "$ignored" = 0 ] || echo "$ignored lines of the user data are no settings, and were ignored"
          '';
        };
      };
  };
}
