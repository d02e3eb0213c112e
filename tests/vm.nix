# The VM tests, as checks: each script of tests/vm with its machines. Where nixpkgs cannot be built, tests/portable
# runs the same scripts.
{
  lib,
  pkgs,
  linerate,
}:
let
  machines = {
    # hosts/vm, with what the scripts call.
    box = {
      imports = [
        linerate
        ../hosts/vm
      ];
      networking.hostName = lib.mkForce "box";
      virtualisation.forwardPorts = lib.mkForce [ ];
      environment.systemPackages = with pkgs; [
        conntrack-tools
        curl
        ethtool
        iputils
        irqbalance
        procps
      ];
    };

    visitor.environment.systemPackages = [ pkgs.curl ];
  };

  test =
    name:
    pkgs.testers.runNixOSTest {
      imports = [ (import (./vm + "/${name}.nix") (machines // { inherit lib; })) ];
      name = "linerate-${name}";
      # hosts/vm says for which system it is.
      node.pkgsReadOnly = false;
      testScript = builtins.readFile (./vm + "/${name}.py");
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
