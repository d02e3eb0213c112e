#!/usr/bin/env python3
"""firewall.py: what passes the firewall of tests/rendered/fleet-1, in network namespaces.

A visitor whose network takes smaller packets than the box's gets whole answers. A container behind the box reaches a
server on a port that is a service's here, and hears of smaller packets too.
"""

import subprocess
import sys
from pathlib import Path

from apart import RENDERED, apart, shell, skip

TABLES = RENDERED / "fleet-1/nftables"
# More than a connection sends before the first answer arrives.
MANY = 200_000
SERVER = """
import socket
listener = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as file:
        sent, wanted = map(int, file.readline().split())
        file.read(sent)
        file.write(bytes(wanted))
"""
CLIENT = """
import socket, sys
address, sent, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.create_connection((address, 80), timeout=20) as connection, connection.makefile("rwb") as file:
    file.write(b"%d %d\\n" % (sent, wanted) + bytes(sent))
    file.flush()
    assert len(file.read(wanted)) == wanted
"""
# The box, whose network this is, has a router and a container; the router has a visitor, by a link with a smaller MTU.
# No address waits until the kernel has asked whether it is another's: for these seconds no neighbour would be found.
NETWORK = """
sysctl -qw net.ipv6.conf.default.accept_dad=0
for name in router visitor container; do
    ip netns add $name
    ip netns exec $name sysctl -qw net.ipv6.conf.default.accept_dad=0
    ip -n $name link set lo up
done
ip link add e0 type veth peer name box netns router
ip -n router link add visitor type veth peer name e0 netns visitor
ip link add c0 type veth peer name e0 netns container
ip address add 10.99.0.1/24 dev e0
ip -n router address add 10.99.0.254/24 dev box
ip -n router address add 10.97.0.254/24 dev visitor
ip -n visitor address add 10.97.0.1/24 dev e0
ip address add 10.88.0.1/24 dev c0
ip -n container address add 10.88.0.2/24 dev e0
ip address add fd99::1/64 dev e0
ip -n router address add fd99::fe/64 dev box
ip -n router address add fd97::fe/64 dev visitor
ip -n visitor address add fd97::1/64 dev e0
ip link set e0 up
ip link set c0 up
ip -n router link set box up
ip -n router link set visitor up mtu 1400
ip -n visitor link set e0 up
ip -n container link set e0 up
ip route add default via 10.99.0.254
ip route add default via fd99::fe
ip -n visitor route add default via 10.97.0.254
ip -n visitor route add default via fd97::fe
ip -n container route add default via 10.88.0.1
sysctl -qw net.ipv4.ip_forward=1
ip netns exec router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
nft 'table ip nat { chain postrouting { type nat hook postrouting priority srcnat; oifname e0 masquerade; }; }'
"""


def serve(*place: str) -> None:
    """Starts a server on port 80, which ends with the namespace."""
    server = subprocess.Popen([*place, sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "listens\n"


def exchange(what: str, name: str, address: str, sent: int, wanted: int) -> None:
    command = ["ip", "netns", "exec", name, sys.executable, "-c", CLIENT, address, str(sent), str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {what}: {done.stderr.strip()}")


def main() -> None:
    apart("the firewall")
    if not Path("/proc/net/if_inet6").exists():
        skip("the firewall", "the kernel has no IPv6")
    if subprocess.run(["nft", "list", "ruleset"], capture_output=True).returncode:
        skip("the firewall", "nft is not allowed")
    shell(NETWORK)
    for table in sorted(TABLES.iterdir()):
        text = f"table inet {table.name} {{\n{table.read_text()}}}\n"
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
    serve()
    serve("ip", "netns", "exec", "visitor")
    exchange("a visitor by IPv4 behind a smaller MTU", "visitor", "10.99.0.1", 0, MANY)
    exchange("a visitor by IPv6 behind a smaller MTU", "visitor", "fd99::1", 0, MANY)
    for address in ("10.97.0.1", "fd97::1"):
        route = shell(f"ip route get {address}")
        assert " mtu 1400" in route, f"the box has heard of the MTU: {route}"
    exchange("a container behind the box", "container", "10.97.0.1", 0, 1)
    exchange("a container behind the box and a smaller MTU", "container", "10.97.0.1", MANY, 1)
    print("firewall: visitors and containers get what they ask for, whatever the MTU on the way")


main()
