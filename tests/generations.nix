# Generations of a host that do what their names say, and the programs that install one, or offer one for the night.
{
  config,
  extendModules,
  lib,
  pkgs,
  ...
}:
let
  # In seconds. It is short, since nothing repairs these generations; tests/health.sh tests the default of a minute.
  patience = 5;
  compatibility = import ../modules/compatibility.nix { inherit lib; };
  # The repository from which the box takes its configuration every night. Nix fetches it with git, as it would from
  # another host.
  repository = "/var/lib/boxes";
  # A copy of a package, which counts as another program.
  copy =
    { meta, ... }@package:
    pkgs.runCommand "${meta.mainProgram}-changed" {
      passthru.generic = package.generic or package;
      meta = { inherit (meta) mainProgram; };
    } "cp -rL ${package} $out";
  generations = {
    good.environment.etc.generation.text = "good";
    # All services have other settings, and one of them also has another program.
    changed = {
      environment.etc.generation.text = "changed";
      services.linerate = {
        links.settings.public-url = lib.mkForce "http://changed";
        api.settings.max-connections = 8192;
        files.package = lib.mkForce (copy config.services.linerate.files.package);
      };
    };
    # Only a program differs.
    program.services.linerate.links.package = lib.mkForce (copy config.services.linerate.links.package);
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
    # systemd freezes when it crashes: from then on it does nothing.
    hanging.systemd.services.linerate-health.script = lib.mkForce "kill -SEGV 1; sleep infinity";
    panicking.systemd.services.panic = {
      wantedBy = [ "sysinit.target" ];
      unitConfig.DefaultDependencies = false;
      serviceConfig.Type = "oneshot";
      script = "echo c >/proc/sysrq-trigger";
    };
  };
  # The host with an additional module, and without any generations of its own.
  build =
    module:
    (extendModules {
      modules = [
        module
        { generations = lib.mkForce [ ]; }
      ];
    }).config.system.build.toplevel;
in
{
  options.generations = lib.mkOption {
    type = lib.types.listOf (lib.types.enum (lib.attrNames generations));
    default = lib.attrNames generations;
    description = "Which generations the host has: evaluating one takes as long as evaluating the host.";
  };

  config = {
    system.switch.enable = true;
    linerate.appliance.update.flake = "git+file://${repository}/.git";
    systemd = lib.mkMerge [
      # No timer: the tests themselves start the nightly update.
      { timers.nixos-upgrade.wantedBy = lib.mkForce [ ]; }
      # While systemd loads its units again, it pings no watchdog; if every instruction is emulated, that takes long.
      (compatibility.watchdog {
        runtime = "60s";
        reboot = lib.mkDefault "10min";
      })
    ];
    environment.etc = lib.listToAttrs (
      map (
        name: lib.nameValuePair "generations/${name}" { source = build generations.${name}; }
      ) config.generations
    );
    environment.systemPackages = [
      (pkgs.writeShellScriptBin "install-generation" ''
        # install-generation NUMBER NAME [boot|switch]: as `nixos-rebuild boot` and `switch` do.
        set -euo pipefail
        profile=/nix/var/nix/profiles/system
        # The first generation contains all others.
        nix-env --profile $profile --set "$(readlink -f "$profile-1-link/etc/generations/$2")"
        [[ $(readlink $profile) == "system-$1-link" ]]
        $profile/bin/switch-to-configuration "''${3:-boot}"
      '')
      (pkgs.writeShellScriptBin "offer-generation" ''
        # offer-generation NAME: commits a flake in which this host is that generation. The flake refers to existing
        # store paths, since this machine cannot build anything.
        set -euo pipefail
        mkdir -p ${repository}
        cd ${repository}
        cat >flake.nix <<EOF
        {
          outputs =
            _:
            let
              existing = path: builtins.appendContext path { \''${path}.path = true; };
            in
            {
              nixosConfigurations.$(</proc/sys/kernel/hostname).config.system.build = {
                toplevel = existing "$(readlink -f "/nix/var/nix/profiles/system-1-link/etc/generations/$1")";
                nixos-rebuild = existing "${config.system.build.nixos-rebuild}";
              };
            };
        }
        EOF
        git=${lib.getExe' pkgs.gitMinimal "git"}
        [[ -e .git ]] || $git init --quiet --initial-branch main
        $git add flake.nix
        $git -c user.name=tests -c user.email=tests@localhost commit --quiet --message "$1"
      '')
    ];
  };
}
