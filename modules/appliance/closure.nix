# A small closure: what the services don't need isn't there, and what must not be there fails the build.
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
    # Interpreters and compilers are tools for intruders. systemd-boot's installer is written in Python.
    default =
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
        "-linux-firmware-"
        "-manual-"
        "-man-pages-"
      ];
    description = ''
      Extended regular expressions. The build fails if one of them matches a path in the system's closure. Alternatives
      are separate expressions, since NixOS's script accepts no parentheses.
    '';
  };

  config = mkIf cfg.enable (
    lib.mkMerge [
      (import ./small.nix { inherit lib; })
      {
        system.forbiddenDependenciesRegexes = cfg.forbidden;

        # The only one of the installer's tools that a box which updates itself needs.
        environment.systemPackages = lib.optional (
          cfg.update.flake != null
        ) config.system.build.nixos-rebuild;
      }
    ]
  );
}
