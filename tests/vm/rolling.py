# Two boxes that are images serve the content of one PostgreSQL, behind a balancer that checks each box's readiness.
# Each in turn is drained, updated, booted on trial and blessed, while clients follow links and create new ones: no
# visit is refused, and no write is lost. Then the database's server is killed, and its standby takes over: every
# acknowledged write is there.

import json
from collections import Counter

boxes = {"east": east, "west": west}
addresses = {"east": "192.168.1.1", "west": "192.168.1.3"}
home = "/var/lib/store"
# The ports of PostgreSQL's servers on the store, by name.
ports = {"first": 5432, "second": 5433}
# How old a box's answers may be (--staleness), in seconds; and how much the clocks of emulated machines may differ over
# that time.
bound = 1.25
# Where visitors and writers are answered, on a box as on the balancer.
served = "( sport = :80 or sport = :8081 or sport = :8100 ) and dst 192.168.1.2"


def sql(server: str, text: str, database: str = "postgres") -> str:
    return store.succeed(f"psql -h {home} -p {ports[server]} -U store -d {database} -v ON_ERROR_STOP=1 -tAc \"{text}\"").strip()


def begin_server(name: str) -> None:
    settings = {
        "port": ports[name],
        "listen_addresses": "*",
        "unix_socket_directories": home,
        "ssl": "on",
        "ssl_cert_file": f"{home}/chain.pem",
        "ssl_key_file": f"{home}/key.pem",
        # A write waits until it is on the disks of both servers.
        "synchronous_commit": "on",
    }
    arguments = " ".join(f"-c {key}={value}" for key, value in settings.items())
    store.succeed(
        f"systemd-run --quiet --unit={name} -p User=store -p Type=notify -p TimeoutStartSec=900 -p KillSignal=SIGINT"
        f" postgres -D {home}/{name} {arguments}",
        timeout=900,
    )


def balanced(service: str, port: int, checked: str) -> str:
    servers = "".join(f" server {name} {address}:{port} {checked.format(name)}\n" for name, address in addresses.items())
    return f"listen {service}\n bind :{port}\n{servers}"


def counters(service: str, name: str) -> dict[str, str]:
    """Returns what the balancer has counted for this box, by its own names."""
    lines = store.succeed("echo show stat | nc -N -U /run/haproxy.sock").splitlines()
    row = next(line.split(",") for line in lines if line.startswith(f"{service},{name},"))
    return dict(zip(lines[0].lstrip("# ").split(","), row))


def becomes(name: str, wanted: str) -> None:
    def done(last: bool) -> bool:
        now = counters("links", name)["status"]
        assert not last or now == wanted, now
        return now == wanted

    retry(done, 900)


def goes_on() -> None:
    """Waits until every client is answered again."""
    store.succeed("load goes-on visits visits-anew")


def answers(file: str) -> list[list[str]]:
    """Returns the writers' answers: the status, and what each was about."""
    return [line.split() for line in store.succeed(f"cat {file}").splitlines()]


def writes(begun: str) -> None:
    """Starts to write links and users, into files whose names start with this."""
    for kind, port in {"links": 8081, "users": 8100}.items():
        store.succeed(
            f"systemd-run --quiet --unit={begun}-{kind} -p WorkingDirectory=/root"
            f" /usr/local/bin/writes {kind} http://store:{port} 2 {begun}-{kind}"
        )


def acknowledged(begun: str) -> dict[str, set[str]]:
    return {kind: {name for status, name in answers(f"{begun}-{kind}") if status == "201"} for kind in ("links", "users")}


def versions(box) -> dict:
    return json.loads(box.succeed("linerate --json update status"))


def healthy(box) -> None:
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")


start_all()

with subtest("a database with a standby, which each write waits for"):
    for name in ("chain", "key"):
        pem = east.succeed(f"cat /etc/store/{name}.pem")
        store.succeed(f"install -d {home} && cat >{home}/{name}.pem <<< '{pem}'")
    store.succeed(
        f"useradd --system store && chmod 600 {home}/key.pem && chown -R store {home}",
        f"runuser -u store -- initdb -D {home}/first -A trust -E UTF8 --locale=C --no-sync",
        f"printf '%s\\n' 'local all all trust' 'local replication all trust' 'hostssl all all 192.168.1.0/24 scram-sha-256'"
        f" >{home}/first/pg_hba.conf",
        timeout=900,
    )
    begin_server("first")
    for name in ("links", "api"):
        sql("first", f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        sql("first", f"CREATE DATABASE {name} OWNER {name}")
    store.succeed(
        f"runuser -u store -- /usr/lib/postgresql/17/bin/pg_basebackup -D {home}/second -R -c fast --no-sync"
        f" -d 'host={home} port={ports['first']} application_name=second'",
        timeout=900,
    )
    begin_server("second")
    sql("first", "ALTER SYSTEM SET synchronous_standby_names = 'second'")
    sql("first", "SELECT pg_reload_conf()")
    store.wait_until_succeeds(
        f"psql -h {home} -U store -d postgres -tAc 'SELECT sync_state FROM pg_stat_replication' | grep -x sync"
    )

with subtest("both boxes are ready, and a balancer takes them"):
    for box in boxes.values():
        healthy(box)
    for address in addresses.values():
        store.wait_until_succeeds(f"curl -sf --max-time 60 http://{address}:8120/readyz")
    by_tls = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL"
    assert sql("first", by_tls) == "t"
    # The services get this as a credential; other programs read it from a file.
    database = east.succeed("sed s,ca.pem,/etc/store/ca.pem, /etc/store/links").strip()
    key = east.succeed(f"LINERATE_LINKS_DATABASE='{database}' linerate-links key add client --scope write")
    # Nothing is tried twice, so that losses are visible. A client that is told to wait waits, on busy emulated CPUs. A
    # box that is slow to report that it is ready, many times in a row, doesn't yet count as drained.
    balancer = (
        "global\n nbthread 1\n stats socket /run/haproxy.sock\n"
        "defaults\n mode http\n retries 0\n balance roundrobin\n"
        " option httpchk\n http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host box\n"
        " timeout connect 280s\n timeout server 280s\n timeout client 900s\n timeout check 60s\n"
        + balanced("links", 80, "check port 8120 inter 2s fall 20 rise 2")
        + balanced("admin", 8081, "track links/{}")
        + balanced("users", 8100, "track links/{}")
    )
    store.succeed(
        f"printf %s '{key.strip()}' >/root/key && printf %s '{balancer}' >/etc/haproxy/haproxy.cfg",
        "haproxy -c -f /etc/haproxy/haproxy.cfg",
        "systemd-run --quiet --unit=balancer -p Type=notify haproxy -Ws -f /etc/haproxy/haproxy.cfg",
    )
    for name in boxes:
        becomes(name, "UP")

with subtest("what is written at one box is seen at the other within the bound"):
    for here, there in (("east", "west"), ("west", "east")):
        print(store.succeed(f"writes seen from-{here} http://{addresses[here]}:8081 http://{addresses[there]} {bound}"))

with subtest("clients follow links and make new ones"):
    east.succeed(f"LINERATE_LINKS_DATABASE='{database}' linerate-links add https://example.com/busy --code busy")
    store.succeed("load begin visits http1 http://store/busy 2 2", "load begin visits-anew anew http://store/busy 1 2")
    writes("rolling")
    goes_on()

for name, box in boxes.items():
    with subtest(f"{name} is drained, and its connections end"):
        assert versions(box)["running"] == "1"
        flaps = box.succeed("journalctl -b -q --no-pager -u linerate-fleet -o cat | grep -c withdrawn || true").strip()
        print(f"{name} withdrew {flaps} times by itself")
        box.succeed("linerate fleet drain")
        store.wait_until_succeeds(
            f"curl -s -o /dev/null --max-time 60 -w '%{{http_code}}' http://{addresses[name]}:8120/readyz | grep -x 503"
        )
        becomes(name, "DOWN")
        box.wait_until_fails(f"ss -Htn state established '{served}' | grep .")
        goes_on()

    with subtest(f"{name} is updated, boots on trial, and is blessed"):
        box.wait_for_file("/dev/disk/by-id/virtio-updates")
        box.succeed(
            "mkdir -p /run/updates/all /run/updates/served",
            "mount -t erofs -o ro /dev/disk/by-id/virtio-updates /run/updates/all",
            "mount --bind /run/updates/all/2 /run/updates/served && systemctl start updates",
        )
        box.wait_for_open_port(8444)
        said = json.loads(box.succeed("linerate --json update apply", timeout=1800))
        print(said)
        said.pop("patched", None)
        assert said == {"next": "2"}, said
        box.shutdown()
        box.start()
        healthy(box)
        box.wait_for_unit("systemd-bless-boot.service")
        now = versions(box)
        assert now["running"] == "2", now
        assert {each["version"]: each["trial"] for each in now["versions"]} == {"1": "good", "2": "good"}, now

    with subtest(f"{name} takes its part again"):
        becomes(name, "UP")
        goes_on()

with subtest("no visit was refused, and no write was lost"):
    store.succeed("systemctl stop rolling-links rolling-users")
    print(store.succeed("load end 307 visits visits-anew"))
    for kind in ("links", "users"):
        counted = Counter(status for status, _ in answers(f"rolling-{kind}"))
        print(f"{kind}: {dict(counted)}")
        # links gives PostgreSQL this many seconds and no more, and tells writers to try again: that isn't the
        # balancer's refusal, and depends on how busy these emulated machines are.
        assert counted["201"] and set(counted) <= {"201", "again"}, (kind, counted)
    for name in boxes:
        shares = {service: int(counters(service, name)["stot"]) for service in ("links", "admin", "users")}
        print(f"{name}: requests {shares}")
        assert all(shares.values()), shares

with subtest("the database's server is killed, and its standby takes over, while clients go on"):
    store.succeed("load begin visits http1 http://store/busy 2 2", "load begin visits-anew anew http://store/busy 1 2")
    writes("killed")
    goes_on()
    store.succeed("systemctl kill --signal=KILL first")
    assert sql("second", "SELECT pg_promote(true, 280)") == "t"
    for kind in ("links", "users"):
        before = len(acknowledged("killed")[kind])
        store.wait_until_succeeds(f"test $(grep -c ^201 killed-{kind}) -gt {before + 5}")
    goes_on()
    store.succeed("systemctl stop killed-links killed-users")
    # Boxes answer from their caches during the whole fail-over.
    print(store.succeed("load end 307 visits visits-anew"))
    for kind in ("links", "users"):
        print(f"{kind}: {dict(Counter(status for status, _ in answers(f'killed-{kind}')))}")

with subtest("all that was acknowledged is there"):
    stored = {
        "links": set(sql("second", "SELECT code FROM links", "links").split()),
        "users": set(sql("second", "SELECT email FROM users", "api").split()),
    }
    for begun in ("rolling", "killed"):
        for kind, names in acknowledged(begun).items():
            assert names and names <= stored[kind], (begun, kind, names - stored[kind])
            print(f"{begun}: {len(names)} {kind} acknowledged, and stored")
