# Addresses as the services read them: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME.
{ lib }:
rec {
  type = lib.types.addCheck lib.types.str valid // {
    description = "address: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME, with a port from 1 to 65535";
  };

  valid =
    text:
    let
      # An address of IPv6 has brackets.
      tcp = builtins.match "(|localhost|[0-9.]+|\\[[0-9a-fA-F:.]+])?:[0-9]{1,5}" text != null;
      number = port text;
    in
    if isTcp text then
      tcp && number >= 1 && number <= 65535
    else
      builtins.match "(unix:/.+)|(systemd:.+)" text != null;

  isUnix = lib.hasPrefix "unix:";

  isTcp = address: !isUnix address && !lib.hasPrefix "systemd:" address;

  port = address: lib.toIntBase10 (lib.last (lib.splitString ":" address));

  ports = addresses: lib.unique (map port (lib.filter isTcp addresses));

  # The programs listen on 127.0.0.1 where it says localhost.
  host =
    address:
    let
      written = lib.removeSuffix ":${lib.last (lib.splitString ":" address)}" address;
    in
    if written == "localhost" then "127.0.0.1" else written;

  # An address that stands for every one.
  isEverywhere =
    address:
    lib.elem (host address) [
      ""
      "0.0.0.0"
      "[::]"
    ];

  # Whether both cannot be listened on at once.
  clash =
    one: other:
    isTcp one
    && isTcp other
    && port one == port other
    && (host one == host other || isEverywhere one || isEverywhere other);

  # For somebody on this machine: an address that stands for every one is reached on the loopback.
  url =
    address:
    "http://${if isEverywhere address then "127.0.0.1" else host address}:${toString (port address)}";

  # `ListenStream=`, where a port alone is every address, and a path has nothing before it.
  stream = address: lib.removePrefix "unix:" (lib.removePrefix ":" address);
}
