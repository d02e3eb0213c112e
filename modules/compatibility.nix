# What NixOS releases before 26.05, the one in flake.lock, name differently or don't have: each in its newer form if the
# release has it. 24.11 is evaluated and booted here; tests/nixos/README.md says what was evaluated and read of newer
# ones. This file goes on 2027-06-30, or as soon as a newer nixpkgs is built here.
{ lib }:
let
  since = lib.versionAtLeast lib.trivial.release;
in
{
  # The unit after which roles and databases exist: since 25.11 it is a target.
  postgresql = if since "25.11" then "postgresql.target" else "postgresql.service";

  # Restarts a PostgreSQL that was killed: NixOS does so itself since 25.05.
  postgresqlRestart = lib.optionalAttrs (!since "25.05") {
    Restart = lib.mkDefault "always";
    RestartSec = lib.mkDefault 1;
  };

  # The unit that a service wants for a certificate, and the unit that it starts after. Since 25.11 both are the same
  # unit: when it has finished, there is a certificate, at first a self-signed one.
  acme =
    if since "25.11" then
      {
        wanted = host: "acme-${host}.service";
        first = host: "acme-${host}.service";
      }
    else
      {
        wanted = host: "acme-finished-${host}.target";
        first = host: "acme-selfsigned-${host}.service";
      };

  # The module, unit and group of BIRD.
  bird = if since "25.05" then "bird" else "bird2";

  # Options of `systemd`: 25.11 has those of systemd-system.conf(5).
  watchdog =
    { runtime, reboot }:
    if since "25.11" then
      {
        settings.Manager = {
          RuntimeWatchdogSec = runtime;
          RebootWatchdogSec = reboot;
        };
      }
    else
      {
        watchdog = {
          runtimeTime = runtime;
          rebootTime = reboot;
        };
      };

  # Options of `systemd` for the unit that blesses a boot. Since 25.11 NixOS has systemd's own units, which systemd's
  # generator starts; a second ExecStart beside theirs would bless the boot twice.
  bless =
    { package }:
    if since "25.11" then
      {
        # If an update of systemd restarts it, there is nothing left to bless, and it may fail.
        services.systemd-bless-boot.restartIfChanged = false;
      }
    else
      {
        targets.boot-complete = {
          description = "Boot Completion Check";
          requires = [ "sysinit.target" ];
          after = [ "sysinit.target" ];
        };
        services.systemd-bless-boot = {
          description = "Mark the Current Boot Loader Entry as Good";
          unitConfig = {
            DefaultDependencies = false;
            ConditionPathExistsGlob = "/sys/firmware/efi/efivars/LoaderBootCountPath-*";
          };
          wantedBy = [ "multi-user.target" ];
          requires = [ "boot-complete.target" ];
          after = [
            "boot-complete.target"
            "local-fs.target"
          ];
          conflicts = [ "shutdown.target" ];
          before = [ "shutdown.target" ];
          serviceConfig = {
            Type = "oneshot";
            RemainAfterExit = true;
            ExecStart = "${package}/lib/systemd/systemd-bless-boot good";
          };
        };
      };
}
