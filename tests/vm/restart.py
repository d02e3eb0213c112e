# Under load from another machine, the service drains and starts again, and no request fails.

start_all()
box.wait_for_unit("linerate-links.service")
box.wait_for_unit("linerate-files.service")
visitor.wait_for_open_port(80, "box")
visitor.wait_for_open_port(8090, "box")

clients = 3


def load(name: str, url: str) -> None:
    """Clients that keep their connections, as browsers and proxies do, until `stop`. Each answer is written at once.

    A client that loses a connection asks again by another: curl only says so aside.
    """
    for client in range(clients):
        visitor.succeed(
            f"stdbuf -oL curl -sv -o /dev/null -w '%{{http_code}} %{{errormsg}}\\n' --max-time 300"
            f" '{url}?[1-10000000]' > {name}-{client} 2> >(grep --line-buffered died > {name}.lost-{client}) &"
            f" echo $! > {name}.pid-{client}"
        )


def goes_on(name: str) -> None:
    """Every client is answered again."""
    for client in range(clients):
        before = int(visitor.succeed(f"wc -l < {name}-{client}"))
        visitor.wait_until_succeeds(f"test $(wc -l < {name}-{client}) -gt {before + 50}")


def stop(name: str, status: str) -> None:
    """Ends the clients; each of their requests had this answer, and no connection was lost."""
    visitor.succeed(f"kill $(cat {name}.pid-*)")
    found = visitor.succeed(f"cat {name}-* | sort | uniq -c").splitlines()
    assert len(found) == 1 and found[0].split()[1:] == [status], found
    lost = visitor.succeed(f"cat {name}.lost-*")
    assert lost == "", lost


box.succeed(
    "runuser -u linerate-links -- linerate-links add https://example.com/a --code busy"
    " --database /var/lib/linerate-links/links.db"
)
box.succeed("echo 0123456789 > /var/lib/linerate-files/digits")

with subtest("links restarts twice under load"):
    began = box.succeed("systemctl show -P MainPID linerate-links.service")
    load("links", "http://box/busy")
    for _ in range(2):
        goes_on("links")
        box.succeed("systemctl restart linerate-links.service")
    goes_on("links")
    stop("links", "307")
    assert box.succeed("systemctl show -P MainPID linerate-links.service") != began

with subtest("files reloads under load"):
    load("files", "http://box:8090/digits")
    goes_on("files")
    box.succeed("systemctl reload linerate-files.service")
    goes_on("files")
    stop("files", "200")

with subtest("a request under way is finished before the service ends"):
    # Its head comes slowly: the connection is open, and half a request is read, when the service is told to stop.
    visitor.succeed(
        "(printf 'GET /busy HTTP/1.1\\r\\nHost: box\\r\\n'; sleep 4; printf '\\r\\n'; sleep 4)"
        " | nc -w 20 box 80 > slow 2>&1 &"
    )
    visitor.sleep(1)
    box.succeed("systemctl restart linerate-links.service")
    visitor.wait_until_succeeds("grep -q '^HTTP/1.1 307' slow")
