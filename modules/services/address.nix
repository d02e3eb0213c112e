# Addresses as the services read them: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME.
{ lib }:
rec {
  type = lib.types.strMatching "((.*:[0-9]{1,5})|(unix:/.+)|(systemd:.+))" // {
    description = "address: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME";
  };

  isTcp = address: !lib.hasPrefix "unix:" address && !lib.hasPrefix "systemd:" address;

  port = address: lib.toInt (lib.last (lib.splitString ":" address));

  ports = addresses: lib.unique (map port (lib.filter isTcp addresses));

  # For somebody on this machine: an address that stands for every one is reached on the loopback.
  url =
    address:
    let
      host = lib.removeSuffix ":${toString (port address)}" address;
      everywhere = lib.elem host [
        ""
        "0.0.0.0"
        "[::]"
      ];
    in
    "http://${if everywhere then "127.0.0.1" else host}:${toString (port address)}";

  # `ListenStream=`, where a port alone is every address.
  stream = address: if lib.hasPrefix ":" address then lib.removePrefix ":" address else address;
}
