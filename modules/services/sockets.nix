# The sockets on which systemd listens for a service, and their names, which the service gets instead of the addresses.
{ lib, address }:
{
  # The service's unit: `linerate-links`.
  unit,
  # From the names of sockets to their addresses.
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
    # Operators use a Unix socket, and so do their programs in the service's group.
    socketConfig =
      lib.optionalAttrs (lib.hasPrefix "admin-" name && address.isUnix where) {
        SocketMode = "0660";
        SocketGroup = unit;
      }
      // {
        Service = "${unit}.service";
        FileDescriptorName = name;
        Backlog = backlog;
        # An accepted connection inherits it, which saves a call for each.
        NoDelay = true;
        # The address may appear after the socket.
        FreeBind = true;
        # [::] accepts both families whatever net.ipv6.bindv6only says.
        BindIPv6Only = "both";
      };
  }
) named
