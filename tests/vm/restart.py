# Under load from another machine, the service drains and starts again, and no request fails.

import json

start_all()
for service in ["links", "files", "api"]:
    box.wait_for_unit(f"linerate-{service}.service")
for port in [80, 8090, 8100, 8443, 8444]:
    visitor.wait_for_open_port(port, "box")


def load(name: str, protocol: str, url: str, clients: int = 1) -> None:
    """Starts clients that keep their connections, until `end`. They leave CPU for handshakes and drains, which end
    after seconds.
    """
    visitor.succeed(f"load begin {name} {protocol} {url} {clients} 10")


def goes_on(names: list[str]) -> None:
    """Waits until every client is answered again."""
    visitor.succeed(f"load goes-on {' '.join(names)}")


def end(names: list[str], status: str) -> None:
    """Ends the clients; each of their requests had this answer, and no connection was lost."""
    print(visitor.succeed(f"load end {status} {' '.join(names)}"))


box.succeed(
    "runuser -u linerate-links -- linerate-links add https://example.com/a --code busy"
    " --database /var/lib/linerate-links/links.db"
)
box.succeed("echo 0123456789 > /var/lib/linerate-files/digits")

certificate = box.succeed("cat /var/lib/certificates/chain.pem")
visitor.succeed(f"cat > chain.pem <<< '{certificate}'")

with subtest("links restarts twice under load, in the clear, by TLS and by HTTP/3"):
    began = box.succeed("systemctl show -P MainPID linerate-links.service")
    load("links", "http1", "http://box/busy")
    load("links-tls", "http1", "https://box:8444/busy")
    load("links-http2", "http2", "https://box:8444/busy")
    load("links-http3", "http3", "https://box:8444/busy", clients=2)
    under_way = ["links", "links-tls", "links-http2", "links-http3"]
    for _ in range(2):
        goes_on(under_way)
        box.succeed("systemctl restart linerate-links.service")
    goes_on(under_way)
    end(under_way, "307")
    assert box.succeed("systemctl show -P MainPID linerate-links.service") != began

with subtest("files and api restart twice under load, on sockets that systemd keeps"):
    made = """--json '{"email": "grace@example.com", "name": "Grace"}' http://box:8100/v1/users"""
    user = json.loads(visitor.succeed(f"curl -sf {made}"))["id"]
    load("clear", "http1", "http://box:8090/digits")
    load("tls", "http1", "https://box:8443/digits")
    load("http2", "http2", "https://box:8443/digits")
    load("by-id", "http1", f"http://box:8100/v1/users/{user}")
    load("http3", "http3", "https://box:8443/digits", clients=2)
    under_way = ["clear", "tls", "http2", "by-id", "http3"]
    for _ in range(2):
        goes_on(under_way)
        box.succeed("systemctl restart linerate-files.service linerate-api.service")
    goes_on(under_way)
    end(under_way, "200")
    # Each service stores only the sockets it listens on: a fixed number for each worker, and one for operators.
    for service, of_worker in [("files", 3), ("api", 1)]:
        kept = int(box.succeed(f"systemctl show -P NFileDescriptorStore linerate-{service}.service"))
        assert kept > of_worker and (kept - 1) % of_worker == 0, (service, kept)

with subtest("who connects while a service starts again waits for it"):
    # Delays the start of the service, as a large database would, until both clients wait.
    box.succeed("mkdir -p /run/late /run/systemd/system/linerate-files.service.d")
    late = "touch /run/late/begun; until test -e /run/late/go; do sleep 0.2; done"
    lines = ["[Service]", "TimeoutStartSec=600", f'ExecStartPre=+/bin/sh -c "{late}"']
    place = "/run/systemd/system/linerate-files.service.d/late.conf"
    box.succeed(
        f"printf '%s\\n' {' '.join(repr(line) for line in lines)} > {place}",
        "systemctl daemon-reload",
        "systemctl restart --no-block linerate-files.service",
    )
    box.wait_until_succeeds("test -e /run/late/begun")
    tls = "--connect-to localhost:8443:box:8443 --cacert chain.pem https://localhost:8443/digits"
    visitor.succeed(
        "curl -sf --max-time 600 -o late-clear http://box:8090/digits > /dev/null 2>&1 &",
        f"curl -sf --max-time 600 -o late-tls {tls} > /dev/null 2>&1 &",
    )
    # A connection that nobody accepts yet is in the kernel's queue.
    for port in (8090, 8443):
        visitor.wait_until_succeeds(f"ss -Htn state established '( dport = :{port} )' | grep -q .")
    box.succeed("touch /run/late/go")
    visitor.wait_until_succeeds("grep -x 0123456789 late-clear && grep -x 0123456789 late-tls")
    box.succeed("rm -r /run/late", "rm -r /run/systemd/system/linerate-files.service.d", "systemctl daemon-reload")

with subtest("files reloads under load"):
    load("files", "http1", "http://box:8090/digits", clients=3)
    load("files-http3", "http3", "https://box:8443/digits", clients=2)
    under_way = ["files", "files-http3"]
    goes_on(under_way)
    box.succeed("systemctl reload linerate-files.service")
    goes_on(under_way)
    end(under_way, "200")

with subtest("a request under way is finished before the service ends"):
    # Its head arrives slowly: the connection is open, and half a request is read, when the service is told to stop.
    visitor.succeed(
        "(printf 'GET /busy HTTP/1.1\\r\\nHost: box\\r\\n'; sleep 4; printf '\\r\\n'; sleep 4)"
        " | nc -w 20 box 80 > slow 2>&1 &"
    )
    visitor.sleep(1)
    box.succeed("systemctl restart linerate-links.service")
    visitor.wait_until_succeeds("grep -q '^HTTP/1.1 307' slow")
