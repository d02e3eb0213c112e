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
      # In seconds, of generations that nothing mends: tests/health.sh has what a minute is for.
      patience = 5;
      # The box with something else in it, and without those beside it.
      generation =
        module:
        (extendModules {
          modules = [
            module
            {
              environment.etc."generations/broken".enable = lib.mkForce false;
              environment.etc."generations/good".enable = lib.mkForce false;
              environment.etc."generations/hanging".enable = lib.mkForce false;
              environment.etc."generations/ill".enable = lib.mkForce false;
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
      environment.etc."generations/good".source = generation {
        environment.etc.generation.text = "good";
      };
      environment.etc."generations/broken".source = generation (
        { config, ... }:
        {
          linerate.appliance.health = { inherit patience; };
          systemd.services.linerate-links.serviceConfig.ExecStart =
            lib.mkForce "${lib.getExe config.services.linerate.links.package} serve --config /none";
        }
      );
      environment.etc."generations/ill".source = generation {
        linerate.appliance.health = { inherit patience; };
        linerate.profile.nic.lost.driver = "nowhere";
      };
      environment.etc."generations/hanging".source = generation {
        # systemd freezes where it crashes, so that nobody is left who does anything.
        systemd.services.linerate-health.script = lib.mkForce "kill -SEGV 1; sleep infinity";
      };
      environment.systemPackages = [
        (pkgs.writeShellScriptBin "install-generation" ''
          # install-generation NUMBER good|broken|ill|hanging: as `nixos-rebuild boot` does.
          set -euo pipefail
          profile=/nix/var/nix/profiles/system
          nix-env --profile $profile --set "$(readlink -f "/etc/generations/$2")"
          [[ $(readlink $profile) == "system-$1-link" ]]
          $profile/bin/switch-to-configuration boot
        '')
      ];
    };
}
