# If every instruction is emulated, and other machines run concurrently, everything takes long: so services give up
# nothing early.
{ lib, ... }:
let
  patience = 300;
  patient = {
    head-timeout = patience;
    idle-timeout = lib.mkDefault patience;
    drain-timeout = lib.mkDefault patience;
  };
in
{
  services.linerate = {
    links.settings = patient;
    files.settings = patient;
    api.settings = patient // {
      acquire-timeout = 1000 * patience;
      database-timeout = 1000 * patience;
    };
  };
  systemd.services = lib.genAttrs [ "linerate-links" "linerate-files" "linerate-api" ] (_: {
    serviceConfig.WatchdogSec = patience;
  });
}
