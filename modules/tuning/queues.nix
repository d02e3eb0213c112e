# Which CPU serves which queue: interrupts, XPS and RPS, which `.link` files can't set. There is a unit for each card in
# linerate.tuning.nic, which udev starts when the card appears, whatever its name; `linerate nic` places queues,
# verifies them, and places them again when the link or its channels change.
{ config, lib, ... }:
let
  inherit (lib) mkIf;
  tuning = config.linerate.tuning;
  placed = lib.filterAttrs (_: card: card.placement != null) tuning.nic;

  unit = name: "linerate-nic-${name}@";

  # systemd has already tagged network cards (99-systemd.rules), so a card may want units.
  rule =
    name: card:
    lib.concatStringsSep ", " (
      [
        ''SUBSYSTEM=="net"''
        ''ACTION!="remove"''
        ''ENV{ID_NET_DRIVER}=="${card.driver}"''
      ]
      ++ lib.optional (card.mac != null) ''ATTR{address}=="${card.mac}"''
      ++ [ ''ENV{SYSTEMD_WANTS}+="${unit name}$name.service"'' ]
    )
    + "\n";

  service =
    name: card:
    let
      device = "sys-subsystem-net-devices-%i.device";
      linerate = lib.getExe config.linerate.packages.linerate;
      arguments = "--policy ${card.placement}" + lib.optionalString (!card.rps) " --no-rps";
    in
    {
      description = "Queues of %i on their CPUs (${name})";
      # The unit runs as long as the card exists.
      bindsTo = [ device ];
      after = [ device ];
      # A card that can't be placed now may be ready soon, but there is a limit.
      startLimitIntervalSec = 300;
      startLimitBurst = 10;
      serviceConfig =
        import ../sandbox.nix {
          # To set channels, RSS tables and XPS.
          capabilities = [ "CAP_NET_ADMIN" ];
        }
        // {
          Type = "exec";
          # Fails the unit if parts of the card can't be placed; earlier changes are then undone.
          ExecStartPre = "${linerate} nic apply %i ${arguments}";
          ExecStart = "${linerate} nic watch %i ${arguments}";
          Restart = "always";
          RestartSec = 5;
          # Each card's unit and operators keep the original values here, for `linerate nic undo`.
          RuntimeDirectory = "linerate";
          RuntimeDirectoryPreserve = true;
          TasksMax = 16;
          MemoryMax = "64M";

          # The unit works on /proc/irq, /proc/interrupts and /sys, and looks for irqbalance among the processes.
          ProtectKernelTunables = false;
          ProcSubset = "all";
          ProtectProc = "default";
          RestrictAddressFamilies = [
            "AF_INET"
            "AF_NETLINK"
            "AF_UNIX"
          ];
          # Nothing leaves this machine.
          IPAddressDeny = "any";
          SystemCallFilter = [
            "@system-service"
            "~@privileged @resources"
          ];
        };
    };
in
{
  config = mkIf (tuning.enable && placed != { }) {
    services.udev.extraRules = lib.concatStrings (lib.mapAttrsToList rule placed);
    systemd.services = lib.mapAttrs' (
      name: card: lib.nameValuePair (unit name) (service name card)
    ) placed;

    assertions = [
      {
        assertion = !config.services.irqbalance.enable;
        message = "linerate.tuning.nic: irqbalance would move the interrupts that placement puts where they belong; set placement = null or turn it off.";
      }
    ];
  };
}
