# Under load from another machine, the service drains and starts again, and no request fails.

start_all()
box.wait_for_unit("linerate-links.service")
box.wait_for_unit("linerate-files.service")
visitor.wait_for_open_port(80, "box")
visitor.wait_for_open_port(8090, "box")

clients = 3
requests = 1500


def load(name: str, url: str) -> None:
    """Clients that keep their connections, as browsers and proxies do."""
    for client in range(clients):
        visitor.succeed(
            f"rm -f {name}-{client}; curl -s -o /dev/null -w '%{{http_code}}\\n' --max-time 300"
            f" '{url}?[1-{requests}]' > {name}-{client} 2>&1 &"
        )


def answered(name: str) -> int:
    return int(visitor.succeed(f"cat {name}-* | wc -l"))


def check(name: str, status: str) -> None:
    visitor.wait_until_succeeds(f"test $(cat {name}-* | wc -l) = {clients * requests}", timeout=240)
    found = visitor.succeed(f"cat {name}-* | sort | uniq -c").split()
    assert found == [str(clients * requests), status], found


box.succeed(
    "runuser -u linerate-links -- linerate-links add https://example.com/a --code busy"
    " --database /var/lib/linerate-links/links.db"
)
# As often as here no fault may restart it (StartLimitBurst).
box.succeed("systemctl reset-failed linerate-links.service")
box.succeed("echo 0123456789 > /var/lib/linerate-files/digits")

with subtest("links restarts twice under load"):
    began = box.succeed("systemctl show -P MainPID linerate-links.service")
    load("links", "http://box/busy")
    for _ in range(2):
        before = answered("links")
        visitor.wait_until_succeeds(f"test $(cat links-* | wc -l) -gt $(({before} + 100))")
        box.succeed("systemctl restart linerate-links.service")
    assert answered("links") < clients * requests, "the load was over before the restarts were"
    check("links", "307")
    assert box.succeed("systemctl show -P MainPID linerate-links.service") != began

with subtest("files reloads under load"):
    load("files", "http://box:8090/digits")
    visitor.wait_until_succeeds("test $(cat files-* | wc -l) -gt 100")
    box.succeed("systemctl reload linerate-files.service")
    assert answered("files") < clients * requests, "the load was over before the reload was"
    check("files", "200")

with subtest("a request under way is finished before the service ends"):
    # Its head comes slowly: the connection is open, and half a request is read, when the service is told to stop.
    visitor.succeed(
        "(printf 'GET /busy HTTP/1.1\\r\\nHost: box\\r\\n'; sleep 4; printf '\\r\\n'; sleep 4)"
        " | nc -w 20 box 80 > slow 2>&1 &"
    )
    visitor.sleep(1)
    box.succeed("systemctl restart linerate-links.service")
    visitor.wait_until_succeeds("grep -q '^HTTP/1.1 307' slow")
