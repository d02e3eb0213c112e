# Parts outside the box come late: its network after a minute, and the API's database after that. The services keep
# trying, and the boot isn't decided until then.


def state(unit: str) -> str:
    return box.succeed(f"systemctl show -P ActiveState {unit}").strip()


def said() -> str:
    return box.succeed("journalctl --sync; journalctl -b --no-pager -o cat -u linerate-health.service")


visitor.start()
visitor.succeed(
    "install -d -o nobody -m 700 /var/lib/db",
    # This takes a while, and the test doesn't wait for it here.
    "systemd-run --no-block --unit=database-files -p Type=oneshot -p RemainAfterExit=yes -p User=nobody -E LC_ALL=C"
    " $(command -v initdb) -D /var/lib/db -A trust -U api --no-sync",
)

box.start()
box.block()
box.succeed(
    "install -d -m 700 /var/lib/secrets",
    # The connection is on a private network, without TLS.
    "echo -n 'postgres://api:secret@visitor/postgres?sslmode=disable&connect_timeout=60' > /var/lib/secrets/database-url",
)
box.wait_for_unit("linerate-links.service")
box.wait_for_unit("linerate-files.service")

with subtest("there is no network for a minute: services run, and the boot is neither good nor bad"):
    assert "192.168.1.1" not in box.succeed("ip -4 -o address")
    # links accepts connections at an address that doesn't exist yet.
    assert "192.168.1.1:80 " in box.succeed("ss -Hltn"), box.succeed("ss -Hltn")
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"
    box.wait_until_succeeds("systemctl show -P ActiveState linerate-health.service | grep -x activating")
    box.wait_until_succeeds(
        "journalctl -b --no-pager -o cat -u linerate-health.service | grep 'there is not: a carrier at '"
    )
    # The wait has to be longer than the health check's patience.
    box.sleep(60)
    assert state("linerate-health.service") == "activating", said()
    assert "not decided yet, since there is not: a carrier at " in said(), said()
    assert "a way to visitor, port 5432" in said() and "secret" not in said(), said()
    assert state("linerate-api.service") == "activating"
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed

with subtest("the network comes: links are answered, the database is still waited for"):
    box.unblock()
    visitor.wait_until_succeeds("curl -s -o /dev/null --max-time 20 http://box/nowhere")
    box.wait_until_succeeds(
        "journalctl -b --no-pager -o cat -u linerate-health.service | tail -n 1"
        # The journal removes spaces from the end of a line.
        " | grep -x 'not decided yet, since there is not: a way to visitor, port 5432; *'"
    )
    assert state("linerate-health.service") == "activating", said()

with subtest("the database comes: the API is there without anybody's doing, and the boot is a good one"):
    visitor.wait_for_unit("database-files.service")
    visitor.succeed("echo 'host all all 192.168.1.0/24 trust' >> /var/lib/db/pg_hba.conf")
    visitor.succeed(
        "systemd-run --unit=database -p User=nobody -E LC_ALL=C $(command -v postgres) -D /var/lib/db -k /tmp"
        " -c listen_addresses='*'"
    )
    visitor.wait_until_succeeds("curl -sf --max-time 20 http://box:8100/v1/users")
    box.wait_for_unit("linerate-health.service")
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed

with subtest("the database goes and comes, and so does the API"):
    visitor.succeed("systemctl stop database.service")
    box.succeed("systemctl restart --no-block linerate-api.service")
    box.wait_until_succeeds("test $(systemctl show -P NRestarts linerate-api.service) -ge 6")
    assert state("linerate-api.service") == "activating"
    visitor.succeed(
        "systemd-run --unit=database -p User=nobody -E LC_ALL=C $(command -v postgres) -D /var/lib/db -k /tmp"
        " -c listen_addresses='*'"
    )
    visitor.wait_until_succeeds("curl -sf --max-time 20 http://box:8100/v1/users")
