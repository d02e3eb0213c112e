{ visitor, ... }:
{
  nodes.box =
    { lib, pkgs, ... }:
    let
      script =
        name: text:
        pkgs.writeShellApplication {
          inherit name text;
          # Warnings about the tests' replacements.
          checkPhase = "";
        };
    in
    {
      imports = [ visitor ];
      # A medium, two disks with other sizes, and one that is too small.
      virtualisation.emptyDiskImages = [
        9216
        10240
        11264
        1024
      ];
      environment.systemPackages = [
        pkgs.dosfstools
        (script "linerate-choose" (builtins.readFile ../../hosts/installer/choose.sh))
        (script "linerate-install" (
          lib.toShellVars (lib.importJSON ../../modules/appliance/disk-layout.json)
          + "\n"
          + builtins.readFile ../../hosts/installer/install.sh
        ))
      ];
    };
}
