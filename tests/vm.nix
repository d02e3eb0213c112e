# The VM tests, as checks: each script of tests/vm with its machines. Where nixpkgs can't be built, tests/portable runs
# the same scripts.
{
  lib,
  pkgs,
  linerate,
  # Makes a host's disk.
  rawImage,
}:
let
  # A host, with the programs that the scripts call.
  host = module: {
    imports = [
      linerate
      module
    ];
    networking.hostName = lib.mkForce "box";
    environment.systemPackages = with pkgs; [
      conntrack-tools
      curl
      ethtool
      iputils
      irqbalance
      procps
    ];
  };

  virtual = import ./virtual.nix;

  machines = {
    box = {
      imports = [ (host ../hosts/vm) ];
      virtualisation.forwardPorts = lib.mkForce [ ];
    };
    aws = {
      imports = [
        (host ../hosts/aws-c6i)
        (virtual "ena")
      ];
      # The host keeps 1 % of 32 GiB free, so it needs this much.
      virtualisation.memorySize = 2048;
      # The test driver uses this console itself.
      systemd.services."serial-getty@ttyS0".enable = lib.mkForce false;
    };
    metal.imports = [
      (host ../hosts/tengbe)
      (virtual "ten")
    ];
    late.imports = [
      machines.box
      ./late.nix
    ];
    companions.imports = [
      machines.box
      ./companions.nix
    ];
    console.imports = [
      machines.box
      ./console.nix
    ];

    visitor.environment.systemPackages = [
      pkgs.curl
    ]
    ++ map (
      name:
      pkgs.writers.writePython3Bin name {
        libraries = [ pkgs.python3Packages.aioquic ];
        doCheck = false;
      } (builtins.readFile (./vm/programs + "/${name}"))
    ) (lib.attrNames (builtins.readDir ./vm/programs));
  };

  test =
    name:
    pkgs.testers.runNixOSTest {
      imports = [
        (import (./vm + "/${name}.nix") (
          machines
          // {
            inherit lib rawImage;
            hostPkgs = pkgs;
          }
        ))
      ];
      name = "linerate-${name}";
      # hosts/vm sets its own system.
      node.pkgsReadOnly = false;
      testScript = lib.mkDefault (builtins.readFile (./vm + "/${name}.py"));
    };
in
lib.listToAttrs (
  map (
    file:
    let
      name = lib.removeSuffix ".nix" file;
    in
    lib.nameValuePair "vm-${name}" (test name)
  ) (lib.filter (lib.hasSuffix ".nix") (lib.attrNames (builtins.readDir ./vm)))
)
