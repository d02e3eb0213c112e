# What third-party programs do beside our services, as the modules set them up: PostgreSQL for the API, Litestream
# beside links, and ACME for files. The visitor keeps the replica, and is the certificate authority.

import json

users = "http://box:8100/v1/users"
links = "/var/lib/linerate-links"
as_links = "runuser -u linerate-links --"


def added(name: str) -> dict[str, str]:
    """Adds a user, which has to be acknowledged."""
    told = visitor.succeed(f"""curl -sf --json '{{"email": "{name}@example.com", "name": "{name}"}}' {users}""")
    return dict(json.loads(told))


def kept(user: dict[str, str]) -> bool:
    """Whether the user is unchanged. The first answer of a restarting database may take longer than the API waits."""
    told = visitor.wait_until_succeeds(f"curl -sf {users}/{user['id']}")
    return told == json.dumps(user, separators=(",", ":"))


def api_is_ready() -> None:
    box.wait_until_succeeds("curl -sf http://127.0.0.1:8101/readyz")
    visitor.wait_for_open_port(8100, "box")


start_all()

with subtest("without a database, links waits until its replica can be asked"):
    box.wait_until_succeeds("test $(systemctl show -P NRestarts linerate-links-restore.service) -gt 0")
    box.fail(f"test -e {links}/links.db")
    assert box.succeed("systemctl show -P ActiveState linerate-links.service").strip() == "inactive"
    visitor.succeed("systemctl start ssh.service 2>/dev/null || systemctl start sshd.service")
    box.succeed("install -d -o linerate-links -g linerate-links -m 700 /var/lib/replica")
    box.succeed(f"{as_links} ssh-keygen -q -t ed25519 -N '' -f /var/lib/replica/key")
    key = box.succeed("cat /var/lib/replica/key.pub").strip()
    visitor.succeed(f"install -d -m 700 /root/.ssh /root/links; echo '{key}' > /root/.ssh/authorized_keys")
    box.wait_for_unit("linerate-links.service")
    # By then, links has made a new one.
    box.succeed(f"test -e {links}/links.db")

box.wait_for_unit("postgresql.service", timeout=2400)
box.wait_for_unit("linerate-api.service")
box.wait_for_unit("linerate-files.service")
api_is_ready()

with subtest("users are in a PostgreSQL that knows the service by its user, and is reached by its socket alone"):
    ada = added("ada")
    assert kept(ada), ada
    count = "psql -h /run/postgresql -U linerate-api -d linerate-api -tAc 'SELECT count(*) FROM users'"
    assert box.succeed(f"runuser -u linerate-api -- {count}").strip() == "1"
    box.fail(f"{as_links} {count}")
    assert ":5432" not in box.succeed("ss -Hltn")
    box.fail("test -e /var/lib/linerate-api/api.db")

with subtest("the figures of the machine, of what doctor finds, and of PostgreSQL are asked for on this host alone"):
    box.succeed("systemctl start linerate-doctor.service")
    box.wait_for_open_port(9100)
    figures = box.succeed("curl -sf http://127.0.0.1:9100/metrics")
    of_kernel = ["node_cpu_seconds_total", "node_interrupts_total", "node_softirqs_functions_total"]
    for name in [*of_kernel, "linerate_doctor_"]:
        assert f"\n{name}" in figures, name
    box.wait_for_open_port(9187)
    box.wait_until_succeeds("curl -sf http://127.0.0.1:9187/metrics | grep -x 'pg_up 1'")
    for port in [9100, 9187]:
        assert visitor.execute(f"curl -s --max-time 3 http://box:{port}/metrics")[0] == 28, port

with subtest("PostgreSQL is killed: it comes back, and so does the service, with what it acknowledged"):
    before = box.succeed("systemctl show -P MainPID postgresql.service linerate-api.service").split()
    box.succeed("systemctl kill --signal=KILL postgresql.service")
    box.wait_until_fails(f"systemctl show -P MainPID postgresql.service | grep -x {before[0]}")
    box.wait_for_unit("postgresql.service")
    api_is_ready()
    assert kept(ada)
    grace = added("grace")
    # The service waited for the database, and was not restarted.
    assert box.succeed("systemctl show -P MainPID linerate-api.service").strip() == before[1]

with subtest("the power fails: what was acknowledged is there"):
    edith = added("edith")
    box.crash()
    box.start()
    box.wait_for_unit("linerate-api.service")
    api_is_ready()
    assert kept(ada) and kept(grace) and kept(edith)

with subtest("links are streamed off the box"):
    box.succeed("(echo code,target; seq 300 | sed 's#.*#first&,https://example.com/&#') > /tmp/first.csv")
    box.succeed(f"{as_links} linerate-links import --database {links}/links.db - --format csv < /tmp/first.csv")
    # It checkpoints its log when it ends, while Litestream is watching.
    box.succeed("systemctl restart linerate-links.service")
    box.succeed("(echo code,target; seq 300 | sed 's#.*#second&,https://example.com/&#') > /tmp/second.csv")
    box.succeed(f"{as_links} linerate-links import --database {links}/links.db - --format csv < /tmp/second.csv")
    restore = f"{as_links} litestream restore -config /etc/linerate/litestream.yml -o"
    box.wait_until_succeeds(
        f"rm -rf /tmp/copy* && {restore} /tmp/copy.db {links}/links.db"
        f" && {as_links} linerate-links export --database /tmp/copy.db | grep -c example.com | grep -x 600"
    )

with subtest("a box that has lost its disk serves what was streamed"):
    # Their names have checksums of their addresses.
    listed = box.succeed("systemctl list-units --plain --no-legend 'linerate-links-*.socket' | cut -d ' ' -f 1")
    sockets = " ".join(listed.split())
    assert "linerate-links-public-" in sockets and "linerate-links-admin-" in sockets, sockets
    box.succeed(f"systemctl stop {sockets} linerate-links.service linerate-litestream.service")
    box.succeed(f"find {links} -mindepth 1 -delete")
    box.succeed(f"systemctl start {sockets} linerate-links.service linerate-litestream.service")
    box.succeed(f"{as_links} linerate-links check --database {links}/links.db")
    for codes, number in [("first", 1), ("first", 300), ("second", 1), ("second", 300)]:
        said = visitor.succeed(f"curl -s -o /dev/null -w '%{{http_code}} %{{redirect_url}}' http://box/{codes}{number}")
        assert said == f"307 https://example.com/{number}", said

with subtest("files has a certificate before any authority has signed one"):
    assert visitor.execute("curl -s --max-time 20 https://box:8443/")[0] == 60
    visitor.succeed("curl -s --max-time 20 --insecure https://box:8443/")

with subtest("an authority signs one, and files takes it without a restart"):
    visitor.succeed(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 10 -subj /CN=visitor"
        " -addext subjectAltName=DNS:visitor,DNS:localhost -keyout /root/authority.key -out /root/authority.pem"
    )
    settings = {
        "listenAddress": "0.0.0.0:14000",
        "managementListenAddress": "127.0.0.1:15000",
        "certificate": "/root/authority.pem",
        "privateKey": "/root/authority.key",
        "httpPort": 5002,
        "tlsPort": 5001,
        "ocspResponderURL": "",
        "externalAccountBindingRequired": False,
    }
    visitor.succeed(f"echo '{json.dumps({'pebble': settings})}' > /root/pebble.json")
    visitor.succeed(
        "systemd-run --unit=authority -E PEBBLE_VA_NOSLEEP=1 $(command -v pebble) -config /root/pebble.json"
    )
    visitor.wait_for_open_port(14000)
    # lego uses it to trust the address that it asks.
    own = visitor.succeed("cat /root/authority.pem")
    box.succeed(f"echo '{own}' > /var/lib/acme/authority.pem; chmod 644 /var/lib/acme/authority.pem")
    # 25.11 has a separate unit for asking the authority.
    unit = box.succeed("systemctl cat acme-order-renew-box.service >/dev/null 2>&1 && echo order-renew-box || echo box")
    drop_in = f"/run/systemd/system/acme-{unit.strip()}.service.d"
    box.succeed(
        f"mkdir -p {drop_in}",
        f"printf '[Service]\nEnvironment=LEGO_CA_CERTIFICATES=/var/lib/acme/authority.pem\n' > {drop_in}/ca.conf",
        "systemctl daemon-reload",
    )
    process = box.succeed("systemctl show -P MainPID linerate-files.service")
    box.succeed(f"systemctl start acme-{unit.strip()}.service")
    visitor.succeed("curl -s --cacert /root/authority.pem https://localhost:15000/roots/0 > /root/root.pem")
    visitor.wait_until_succeeds("curl -s -o /dev/null --max-time 20 --cacert /root/root.pem https://box:8443/")
    assert box.succeed("systemctl show -P MainPID linerate-files.service") == process
    box.fail("runuser -u linerate-api -- cat /var/lib/acme/box/key.pem")
