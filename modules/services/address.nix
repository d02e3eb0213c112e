# Addresses as the services read them: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME.
{ lib }:
rec {
  type = lib.types.addCheck lib.types.str valid // {
    description = "address: IP:PORT, localhost:PORT, :PORT, unix:PATH or systemd:NAME, with a port from 1 to 65535";
  };

  valid =
    text:
    let
      # An IPv6 address has brackets.
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

  # For localhost, the programs listen on 127.0.0.1.
  host =
    address:
    let
      written = lib.removeSuffix ":${lib.last (lib.splitString ":" address)}" address;
    in
    if written == "localhost" then "127.0.0.1" else written;

  # An address that stands for all addresses.
  isEverywhere = address: isBoth address || host address == "0.0.0.0";

  # One that stands for all addresses of both families. IPv6's may be written with any number of zeros.
  isBoth = address: builtins.match "|\\[[0:]*::?[0:]*]" (host address) != null;

  # One of IPv6 alone, and not an IPv4 address in its form.
  isV6 =
    address:
    let
      written = lib.toLower (host address);
    in
    lib.hasPrefix "[" written && !lib.hasPrefix "[::ffff:" written && !isBoth address;

  # Whether a socket on `all` also gets what arrives at `one`. `0.0.0.0` gets nothing of an IPv6 address, since a socket
  # on one of those takes no IPv4.
  includes = all: one: isBoth all || host all == "0.0.0.0" && !isV6 one;

  # Whether it is impossible to listen on both at once.
  clash =
    one: other:
    isTcp one
    && isTcp other
    && port one == port other
    && (host one == host other || includes one other || includes other one);

  # For clients on this machine: an address that stands for all addresses is reached on the loopback.
  url =
    address:
    "http://${if isEverywhere address then "127.0.0.1" else host address}:${toString (port address)}";

  # For `ListenStream=`: a port without an address means every address, and a path has no prefix.
  stream = address: lib.removePrefix "unix:" (lib.removePrefix ":" address);
}
