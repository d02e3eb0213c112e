# The sockets on which systemd listens for a service, and their names, which the service is told instead of
# the addresses.
{ lib, address }:
{
  # Of the service: `linerate-links`.
  unit,
  # Name of a socket to its address.
  named,
  # How many connections may wait to be accepted.
  backlog,
}:
lib.mapAttrs' (
  name: where:
  lib.nameValuePair "${unit}-${name}" {
    description = "Socket ${name} of ${unit}";
    wantedBy = [ "sockets.target" ];
    listenStreams = [ (address.stream where) ];
    # By a Unix socket come operators, and programs of theirs that are of the service's group.
    socketConfig =
      lib.optionalAttrs (name == "admin" && address.isUnix where) {
        SocketMode = "0660";
        SocketGroup = unit;
      }
      // {
        Service = "${unit}.service";
        FileDescriptorName = name;
        Backlog = backlog;
        # An accepted connection inherits it, which saves a call for each.
        NoDelay = true;
        # The address may come later than the socket.
        FreeBind = true;
        # [::] takes both families whatever net.ipv6.bindv6only says.
        BindIPv6Only = "both";
      };
  }
) named
