# Generations of a host that do what their names say, and the program that installs one.
{
  config,
  extendModules,
  lib,
  pkgs,
  ...
}:
let
  # In seconds, for generations that nothing repairs: tests/health.sh tests what a minute is for.
  patience = 5;
  generations = {
    good.environment.etc.generation.text = "good";
    # All services have other settings, and one of them another program.
    changed = {
      environment.etc.generation.text = "changed";
      services.linerate = {
        links.settings.public-url = lib.mkForce "http://changed";
        api.settings.max-connections = 8192;
        files.package =
          let
            inherit (config.services.linerate.files) package;
          in
          # A copy, which counts as another program.
          lib.mkForce (
            pkgs.runCommand "linerate-files-changed" {
              passthru.generic = package.generic or package;
              meta.mainProgram = "linerate-files";
            } "cp -rL ${package} $out"
          );
      };
    };
    broken = {
      linerate.appliance.health = { inherit patience; };
      systemd.services.linerate-links.serviceConfig.ExecStart =
        lib.mkForce "${lib.getExe config.services.linerate.links.package} serve --config /none";
    };
    ill = {
      linerate.appliance.health = { inherit patience; };
      linerate.profile.nic.lost.driver = "nowhere";
    };
    # Only links differs.
    moved.services.linerate.links.settings.public-url = lib.mkForce "http://moved";
    # systemd freezes when it crashes, so that nothing does anything any more.
    hanging.systemd.services.linerate-health.script = lib.mkForce "kill -SEGV 1; sleep infinity";
    panicking.systemd.services.panic = {
      wantedBy = [ "sysinit.target" ];
      unitConfig.DefaultDependencies = false;
      serviceConfig.Type = "oneshot";
      script = "echo c >/proc/sysrq-trigger";
    };
  };
  # The host with something else in it, and without the other generations.
  build =
    module:
    (extendModules {
      modules = [
        module
        {
          environment.etc = lib.mapAttrs' (
            name: _: lib.nameValuePair "generations/${name}" { enable = lib.mkForce false; }
          ) generations;
        }
      ];
    }).config.system.build.toplevel;
in
{
  system.switch.enable = true;
  environment.etc = lib.mapAttrs' (
    name: module: lib.nameValuePair "generations/${name}" { source = build module; }
  ) generations;
  environment.systemPackages = [
    (pkgs.writeShellScriptBin "install-generation" ''
      # install-generation NUMBER NAME [boot|switch]: as `nixos-rebuild boot` and `switch` do.
      set -euo pipefail
      profile=/nix/var/nix/profiles/system
      # The first has them all.
      nix-env --profile $profile --set "$(readlink -f "$profile-1-link/etc/generations/$2")"
      [[ $(readlink $profile) == "system-$1-link" ]]
      $profile/bin/switch-to-configuration "''${3:-boot}"
    '')
  ];
}
