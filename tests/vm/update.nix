{ metal, ... }:
{
  nodes.box =
    {
      extendModules,
      lib,
      pkgs,
      ...
    }:
    let
      # The box with something else in it, and without those beside it.
      generation =
        module:
        (extendModules {
          modules = [
            module
            {
              environment.etc."generations/broken".enable = lib.mkForce false;
              environment.etc."generations/good".enable = lib.mkForce false;
            }
          ];
        }).config.system.build.toplevel;
    in
    {
      imports = [ metal ];
      virtualisation = {
        useBootLoader = true;
        useEFIBoot = true;
      };
      system.switch.enable = true;
      # A host has two, of which each takes as long as it may take to become healthy; one shows as much.
      linerate.appliance.update.tries = 1;

      environment.etc."generations/good".source = generation {
        environment.etc.generation.text = "good";
      };
      environment.etc."generations/broken".source = generation (
        { config, ... }:
        {
          systemd.services.linerate-links.serviceConfig.ExecStart =
            lib.mkForce "${lib.getExe config.services.linerate.links.package} serve --config /none";
        }
      );
      environment.systemPackages = [
        (pkgs.writeShellScriptBin "install-generation" ''
          # install-generation NUMBER good|broken: as `nixos-rebuild boot` does.
          set -euo pipefail
          profile=/nix/var/nix/profiles/system
          nix-env --profile $profile --set "$(readlink -f "/etc/generations/$2")"
          [[ $(readlink $profile) == "system-$1-link" ]]
          $profile/bin/switch-to-configuration boot
        '')
      ];
    };
}
