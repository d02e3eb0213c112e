# The running system is switched to a generation in which all services differ, and back. Meanwhile another machine sends
# requests over every protocol and counts the answers, and slowly reads responses that were started before. No request
# fails, no connection is lost, the sockets stay the same, and nobody waits for the process that still drains.

import json
import re

profile = "/nix/var/nix/profiles/system"
services = ["links", "files", "api"]
# For what is read slowly: one that takes longer than all of this, and one that ends in between.
sizes = {"endless": 1 << 30, "whole": 12 << 20}


def processes() -> dict[str, str]:
    """Returns systemd's main processes, by the services' names."""
    return {name: box.succeed(f"systemctl show -P MainPID linerate-{name}").strip() for name in services}


def restarts() -> dict[str, str]:
    """Returns how often systemd had to restart the services, by name."""
    return {name: box.succeed(f"systemctl show -P NRestarts linerate-{name}").strip() for name in services}


def sockets() -> list[str]:
    """Returns visitors' sockets: their types, addresses, and the kernel's identifiers."""
    ports = " or ".join(f"sport = {port}" for port in (80, 8090, 8100, 8443, 8444))
    lines = box.succeed(f"ss -Hlntue '( {ports} )'").splitlines()
    return sorted(" ".join([line.split()[0], line.split()[4], *re.findall(r"\bino:\d+", line)]) for line in lines)


with subtest("the box serves"):
    start_all()
    for service in services:
        box.wait_for_unit(f"linerate-{service}.service")
    for port in [80, 8090, 8100, 8443, 8444]:
        visitor.wait_for_open_port(port, "box")
    box.succeed(
        "runuser -u linerate-links -- linerate-links add https://example.com/busy --code busy"
        " --database /var/lib/linerate-links/links.db"
    )
    box.succeed("echo 0123456789 >/var/lib/linerate-files/digits")
    for name, size in sizes.items():
        box.succeed(f"truncate -s {size} /var/lib/linerate-files/{name}")
    made = """--json '{"email": "ada@example.com", "name": "Ada"}' http://box:8100/v1/users"""
    user = json.loads(visitor.succeed(f"curl -sf {made}"))["id"]
    certificate = box.succeed("cat /etc/certificate/chain.pem")
    visitor.succeed(f"cat >chain.pem <<< '{certificate}'")

# By name: the protocol, what is requested, and the status of every answer.
clients = {
    "links": ("http1", "http://box/busy", "307"),
    "links-anew": ("anew", "http://box/busy", "307"),
    "links-tls": ("http1", "https://box:8444/busy", "307"),
    "links-http2": ("http2", "https://box:8444/busy", "307"),
    "links-http3": ("http3", "https://box:8444/busy", "307"),
    "files": ("http1", "http://box:8090/digits", "200"),
    "files-tls": ("http1", "https://box:8443/digits", "200"),
    "files-http2": ("http2", "https://box:8443/digits", "200"),
    "files-http3": ("http3", "https://box:8443/digits", "200"),
    "api": ("http1", f"http://box:8100/v1/users/{user}", "200"),
    "api-anew": ("anew", f"http://box:8100/v1/users/{user}", "200"),
}


def slowly(name: str) -> None:
    """Starts to read what the currently serving process should finish, and waits until it has sent some of it."""
    visitor.succeed(
        f"(curl -sS --limit-rate 64k -o {name}.body -w '%{{http_code}} %{{size_download}}\\n' http://box:8090/{name}"
        f" >{name}.slow 2>&1 & echo $! >{name}.pid)",
    )
    visitor.wait_until_succeeds(f"test -s {name}.body")


def goes_on() -> None:
    """Waits until every client is answered again."""
    visitor.succeed(f"load goes-on {' '.join(clients)}")


with subtest("clients are answered by every protocol"):
    for name, (protocol, url, _) in clients.items():
        # Both machines should have time for a switch besides.
        visitor.succeed(f"load begin {name} {protocol} {url} 1 4")
    goes_on()
    first, before = processes(), sockets()
    assert {line.split()[0] for line in before} == {"tcp", "udp"}, before

with subtest("all services are switched to other settings and another program under load, and nobody waits for what drains"):
    for name in sizes:
        slowly(name)
    box.succeed("install-generation 2 changed switch", timeout=900)
    second = processes()
    assert all(second[name] != first[name] for name in services), (first, second)
    # The new process has taken over; the service was not restarted.
    assert set(restarts().values()) == {"0"}, restarts()
    assert box.succeed("cat /etc/generation") == "changed"
    assert sockets() == before, (before, sockets())
    goes_on()
    # All were answered, and the slow one is still read from the earlier process.
    box.succeed(f"test -d /proc/{first['files']}")
    visitor.succeed("kill -0 $(cat endless.pid)")

with subtest("they are taken back by hand under load"):
    box.succeed(
        f"nix-env --profile {profile} --switch-generation 1",
        f"{profile}/bin/switch-to-configuration switch",
        timeout=900,
    )
    third = processes()
    assert all(third[name] != second[name] for name in services), (second, third)
    assert set(restarts().values()) == {"0"}, restarts()
    assert box.succeed("readlink -f /run/current-system") == box.succeed("readlink -f /run/booted-system")
    assert sockets() == before, (before, sockets())
    goes_on()

with subtest("no request has failed, and no connection was lost"):
    ended = []
    for expected in ("307", "200"):
        names = [name for name, (_, _, status) in clients.items() if status == expected]
        ended.append(visitor.execute(f"load end {expected} {' '.join(names)} 2>&1"))
        print(ended[-1][1].strip())
    assert all(status == 0 for status, _ in ended), ended

with subtest("what was begun before all of that is still sent, by the process that began it"):
    box.succeed(f"test -d /proc/{first['files']}")
    visitor.succeed("kill -0 $(cat endless.pid)")
    visitor.wait_until_succeeds("grep -x '200 %d' whole.slow" % sizes["whole"])

with subtest("one that has taken over is killed, those that drain are in nobody's way, and all is well again"):
    box.succeed(f"kill -9 {third['files']}")
    box.wait_until_succeeds(f"systemctl show -P MainPID linerate-files | grep -vx -e {third['files']} -e 0")
    assert visitor.succeed("curl -sf --max-time 120 http://box:8090/digits") == "0123456789\n"
    assert sockets() == before, (before, sockets())
    # The process that was draining is cut off too, like everything that a crash takes with it.
    box.fail(f"test -d /proc/{first['files']}")
