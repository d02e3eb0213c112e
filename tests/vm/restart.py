# Under load from another machine, the service drains and starts again, and no request fails.

import json

start_all()
for service in ["links", "files", "api"]:
    box.wait_for_unit(f"linerate-{service}.service")
for port in [80, 8090, 8100, 8443, 8444]:
    visitor.wait_for_open_port(port, "box")

# How many clients ask by each name.
running: dict[str, int] = {}


def load(name: str, url: str, flags: str = "", clients: int = 3) -> None:
    """Clients that keep their connections, as browsers and proxies do, until `stop`. Each answer is written at once.

    A client that loses a connection asks again by another: curl only says so aside.
    """
    curl = "stdbuf -oL curl -sv -o /dev/null -w '%{http_code} %{errormsg}\\n' --max-time 300"
    start(name, f"{curl} {flags} '{url}#[1-10000000]'", clients)


def load_h3(name: str, port: int, path: str, clients: int = 2) -> None:
    """The same by HTTP/3. A client that the server says goodbye to asks again by another connection, and so it does who loses
    one, which it says aside.
    """
    start(name, f"h3-load https://box:{port}{path} chain.pem", clients)


def start(name: str, client: str, clients: int) -> None:
    """Clients that write a line for each answer, and aside one for each connection that has died."""
    running[name] = clients
    for number in range(clients):
        visitor.succeed(
            f"{client} > {name}-{number} 2> >(grep --line-buffered died > {name}.lost-{number}) &"
            f" echo $! > {name}.pid-{number}"
        )


def goes_on(name: str) -> None:
    """Every client is answered again."""
    for client in range(running[name]):
        before = int(visitor.succeed(f"wc -l < {name}-{client}"))
        visitor.wait_until_succeeds(f"test $(wc -l < {name}-{client}) -gt {before + 20}")


def stop(name: str, status: str) -> None:
    """Ends the clients; each of their requests had this answer, and no connection was lost."""
    visitor.succeed(f"kill $(cat {name}.pid-*)")
    # Of this name alone: others may begin with it.
    found = visitor.succeed(f"cat {name}-[0-9] | sort | uniq -c").splitlines()
    assert len(found) == 1 and found[0].split()[1:] == [status], found
    print(f"{name}: {found[0].split()[0]} answers, no connection lost")
    lost = visitor.succeed(f"cat {name}.lost-*")
    assert lost == "", lost


box.succeed(
    "runuser -u linerate-links -- linerate-links add https://example.com/a --code busy"
    " --database /var/lib/linerate-links/links.db"
)
box.succeed("echo 0123456789 > /var/lib/linerate-files/digits")

certificate = box.succeed("cat /var/lib/certificates/chain.pem")
visitor.succeed(f"cat > chain.pem <<< '{certificate}'")


def by_tls(port: int) -> str:
    """Flags of curl, with which it asks the box at this port for what its certificate is of."""
    return f"--connect-to localhost:{port}:box:{port} --cacert chain.pem"


with subtest("links restarts twice under load, in the clear, by TLS and by HTTP/3"):
    began = box.succeed("systemctl show -P MainPID linerate-links.service")
    load("links", "http://box/busy", clients=1)
    load("links-tls", "https://localhost:8444/busy", f"{by_tls(8444)} --http1.1", clients=1)
    load("links-http2", "https://localhost:8444/busy", f"{by_tls(8444)} --http2", clients=1)
    load_h3("links-http3", 8444, "/busy")
    under_way = ["links", "links-tls", "links-http2", "links-http3"]
    for _ in range(2):
        for name in under_way:
            goes_on(name)
        box.succeed("systemctl restart linerate-links.service")
    for name in under_way:
        goes_on(name)
        stop(name, "307")
    assert box.succeed("systemctl show -P MainPID linerate-links.service") != began

with subtest("files and api restart twice under load, on sockets that systemd keeps"):
    made = """--json '{"email": "grace@example.com", "name": "Grace"}' http://box:8100/v1/users"""
    user = json.loads(visitor.succeed(f"curl -sf {made}"))["id"]
    tls = by_tls(8443)
    asked_for = {
        "clear": ("http://box:8090/digits", ""),
        "tls": ("https://localhost:8443/digits", f"{tls} --http1.1"),
        "http2": ("https://localhost:8443/digits", f"{tls} --http2"),
        "by-id": (f"http://box:8100/v1/users/{user}", ""),
    }
    for name, (url, flags) in asked_for.items():
        load(name, url, flags, clients=1)
    load_h3("http3", 8443, "/digits")
    under_way = [*asked_for, "http3"]
    for _ in range(2):
        for name in under_way:
            goes_on(name)
        box.succeed("systemctl restart linerate-files.service linerate-api.service")
    for name in under_way:
        goes_on(name)
        stop(name, "200")
    # Each has those it listens on, and no others: some for each worker, and one for operators.
    for service, of_worker in [("files", 3), ("api", 1)]:
        kept = int(box.succeed(f"systemctl show -P NFileDescriptorStore linerate-{service}.service"))
        assert kept > of_worker and (kept - 1) % of_worker == 0, (service, kept)

with subtest("who connects while a service starts again waits for it"):
    # Held up before it is there, as by a large database.
    box.succeed("mkdir -p /run/systemd/system/linerate-files.service.d")
    box.succeed(
        "printf '[Service]\nExecStartPre=sleep 5\n' > /run/systemd/system/linerate-files.service.d/late.conf",
        "systemctl daemon-reload",
        "systemctl restart --no-block linerate-files.service",
    )
    box.wait_until_succeeds("systemctl show -P SubState linerate-files.service | grep -x start-pre")
    assert visitor.succeed("curl -sf --max-time 120 http://box:8090/digits") == "0123456789\n"
    assert visitor.succeed(f"curl -sf --max-time 120 {tls} https://localhost:8443/digits") == "0123456789\n"
    box.succeed("rm -r /run/systemd/system/linerate-files.service.d", "systemctl daemon-reload")

with subtest("files reloads under load"):
    load("files", "http://box:8090/digits")
    load_h3("files-http3", 8443, "/digits")
    under_way = ["files", "files-http3"]
    for name in under_way:
        goes_on(name)
    box.succeed("systemctl reload linerate-files.service")
    for name in under_way:
        goes_on(name)
        stop(name, "200")

with subtest("a request under way is finished before the service ends"):
    # Its head comes slowly: the connection is open, and half a request is read, when the service is told to stop.
    visitor.succeed(
        "(printf 'GET /busy HTTP/1.1\\r\\nHost: box\\r\\n'; sleep 4; printf '\\r\\n'; sleep 4)"
        " | nc -w 20 box 80 > slow 2>&1 &"
    )
    visitor.sleep(1)
    box.succeed("systemctl restart linerate-links.service")
    visitor.wait_until_succeeds("grep -q '^HTTP/1.1 307' slow")
