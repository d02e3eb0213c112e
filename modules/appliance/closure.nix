# Keeps the closure small: it leaves out what the services don't need, and the build fails if it contains anything
# forbidden.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption;
  cfg = config.linerate.appliance;
in
{
  options.linerate.appliance.forbidden = mkOption {
    # NixOS writes each of them, without quotes, into `if [[ … != "" ]]` in the system's build script.
    type = lib.types.listOf (lib.types.strMatching "[^[:space:]()|&;<>'\"`]+") // {
      description = "list of extended regular expressions without spaces, quotes, parentheses, |, &, ;, < and >";
    };
    default = [ ];
    description = ''
      Extended regular expressions. The build fails if one of them matches a path in the system's closure. Alternatives
      are separate expressions, since NixOS's script accepts no parentheses.

      The appliance itself names perl, ruby, nodejs, gcc, clang, rustc, cargo, go and manuals, and on an image Nix and
      Python. What you set is added to that; `lib.mkForce` replaces it.

      All firmware (linux-firmware, some hundred MiB) is forbidden unless `hardware.enableRedistributableFirmware` is
      set, as what `nixos-generate-config` writes for a real machine sets it. For a small system, set that to false, put
      what the machine's cards need into `hardware.firmware`, and set `hardware.cpu.intel.updateMicrocode` or
      `hardware.cpu.amd.updateMicrocode`.
    '';
  };

  config = mkIf cfg.enable (
    lib.mkMerge [
      (import ./small.nix { inherit config lib; })
      {
        # Interpreters and compilers are tools for intruders. systemd-boot's installer is written in Python.
        linerate.appliance.forbidden =
          map (language: "-${language}-[0-9]") [
            "perl"
            "ruby"
            "nodejs"
          ]
          ++
            lib.concatMap
              (compiler: [
                "-${compiler}-[0-9.]+$"
                "-${compiler}-wrapper-[0-9.]+$"
              ])
              [
                "gcc"
                "clang"
                "rustc"
                "cargo"
                "go"
              ]
          ++ [
            "-manual-"
            "-man-pages-"
          ]
          # `nixos-generate-config` asks for all firmware on each real machine, since a card may not work without, and
          # for updates of the CPU's microcode only together with it.
          ++ lib.optional (!config.hardware.enableRedistributableFirmware) "-linux-firmware-";
        system.forbiddenDependenciesRegexes = cfg.forbidden;

        # Of the installer's tools, a box that updates itself needs only nixos-rebuild.
        environment.systemPackages = lib.optional (
          cfg.update.flake != null
        ) config.system.build.nixos-rebuild;
      }
    ]
  );
}
