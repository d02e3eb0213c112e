# Each service end to end, from another machine, in the unit that the host gives it.

import json


def status(url: str) -> str:
    return visitor.succeed(f"curl -s -o /dev/null --max-time 120 -w '%{{http_code}}' {url}")


def user_of(unit: str) -> str:
    return box.succeed(f"ps -o user:32= -p $(systemctl show -P MainPID {unit})").strip()


start_all()
box.wait_for_unit("linerate-links.service")
box.wait_for_unit("linerate-files.service")
box.wait_for_unit("linerate-api.service")
for port in [80, 8090, 8100, 8443]:
    visitor.wait_for_open_port(port, "box")

with subtest("a link that was acknowledged is answered"):
    box.succeed(
        "runuser -u linerate-links -- linerate-links add https://example.com/a --code way"
        " --database /var/lib/linerate-links/links.db"
    )
    answer = visitor.succeed("curl -s -i --max-time 20 http://box/way").lower()
    assert answer.startswith("http/1.1 307 "), answer
    assert "\nlocation: https://example.com/a\r\n" in answer, answer
    assert status("http://box/nowhere") == "404"

with subtest("a link is made over the API with a token, and by nobody without one"):
    token = box.succeed(
        "runuser -u linerate-links -- linerate-links key add test --scope write --json"
        " --database /var/lib/linerate-links/links.db"
    )
    token = json.loads(token)["key"]
    post = "curl -s -o /dev/null -w '%{http_code}' --json '{\"target\": \"https://example.com/b\", \"code\": \"made\"}'"
    url = "http://127.0.0.1:8081/api/v1/links"
    assert box.succeed(f"{post} {url}") == "401"
    assert box.succeed(f"{post} -H 'Authorization: Bearer {token}' {url}") == "201"
    assert status("http://box/made") == "307"

with subtest("files are served, with ranges"):
    box.succeed("mkdir /var/lib/linerate-files/assets")
    box.succeed("echo 0123456789 > /var/lib/linerate-files/assets/digits")
    url = "http://box:8090/assets/digits"
    assert visitor.succeed(f"curl -sf {url}") == "0123456789\n"
    assert visitor.succeed(f"curl -sf -r 2-4 {url}") == "234"
    assert status("http://box:8090/assets/nothing") == "404"

with subtest("files come by TLS, with a certificate that root alone has and the service is handed"):
    certificate = box.succeed("cat /var/lib/certificates/chain.pem")
    visitor.succeed(f"cat > chain.pem <<< '{certificate}'")
    url = "--connect-to localhost:8443:box:8443 https://localhost:8443/assets/digits"
    another = box.succeed(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=another -keyout /dev/null"
    )
    visitor.succeed(f"cat > another.pem <<< '{another}'")
    # 60: the signer is unknown.
    stranger = visitor.execute(f"curl -s --max-time 20 --cacert another.pem {url}")
    assert stranger[0] == 60, stranger
    said = visitor.succeed(f"curl -sf --max-time 20 --cacert chain.pem -w '%{{http_version}}' {url}")
    assert said == "0123456789\n2", said
    assert box.succeed("stat -c '%U %a' /var/lib/certificates/key.pem").strip() == "root 600"
    box.fail("runuser -u linerate-files -- cat /var/lib/certificates/key.pem")

with subtest("a user that was acknowledged is there after the service died"):
    url = "http://box:8100/v1/users"
    user = json.loads(visitor.succeed(f"""curl -sf --json '{{"email": "ada@example.com", "name": "Ada"}}' {url}"""))
    assert json.loads(visitor.succeed(f"curl -sf {url}/{user['id']}")) == user
    box.succeed("systemctl kill --signal=KILL linerate-api.service")
    box.wait_until_succeeds("test $(systemctl show -P NRestarts linerate-api.service) = 1")
    box.wait_until_succeeds("curl -sf http://127.0.0.1:8101/readyz")
    assert json.loads(visitor.succeed(f"curl -sf {url}/{user['id']}")) == user
    assert status(f"--json '{{\"name\": 1}}' {url}") == "422"

with subtest("a secret is handed to its service alone, and counts before the settings"):
    # As in services.linerate.api.secrets.
    box.succeed("install -m 600 /dev/null /root/database-url")
    box.succeed("echo -n sqlite:/var/lib/linerate-api/secret.db > /root/database-url")
    box.succeed("mkdir -p /run/systemd/system/linerate-api.service.d")
    box.succeed(
        "printf '[Service]\nLoadCredential=LINERATE_API_DATABASE_URL:/root/database-url\n'"
        " > /run/systemd/system/linerate-api.service.d/secret.conf"
    )
    box.succeed("systemctl daemon-reload", "systemctl restart linerate-api.service")
    assert status(f"http://box:8100/v1/users/{user['id']}") == "404"
    box.succeed("test -s /var/lib/linerate-api/secret.db")
    box.fail("grep -qz secret.db /proc/$(systemctl show -P MainPID linerate-api)/environ")
    box.succeed("rm -r /run/systemd/system/linerate-api.service.d")
    box.succeed("systemctl daemon-reload", "systemctl restart linerate-api.service")
    assert status(f"http://box:8100/v1/users/{user['id']}") == "200"

with subtest("the kernel encrypts files that are asked for by HTTP/1.1 over TLS"):
    # Loaded at boot, since there is an address for TLS.
    box.succeed("test -d /sys/module/tls")
    box.succeed("head -c 3000000 /dev/urandom > /var/lib/linerate-files/assets/random")
    secure = "curl -sS --insecure --max-time 60"
    random = "https://127.0.0.1:8443/assets/random"
    whole = box.succeed("sha256sum < /var/lib/linerate-files/assets/random")

    def encrypted_by_the_kernel() -> int:
        counts = dict(line.split() for line in box.succeed("cat /proc/net/tls_stat").splitlines())
        assert counts["TlsDecryptError"] == "0", counts
        # Counters for connections that a card encrypts would be others (Device instead of Sw).
        return min(int(counts["TlsTxSw"]), int(counts["TlsRxSw"]))

    # The service has tried each cipher suite when it started, which counts too.
    tried = encrypted_by_the_kernel()
    assert box.succeed(f"{secure} --http1.1 {random} | sha256sum") == whole
    assert encrypted_by_the_kernel() == tried + 1
    # Ranges, one and several, and further requests on the same connection, one of which has no body.
    file = "/var/lib/linerate-files/assets/random"
    for flags, part in [
        ("-r 1000-1999999", f"head -c 2000000 {file} | tail -c +1001"),
        ("-r -70000", f"tail -c 70000 {file}"),
    ]:
        wanted = box.succeed(f"{part} | sha256sum")
        assert box.succeed(f"{secure} --http1.1 {flags} {random} | sha256sum") == wanted, flags
    several = box.succeed(f"{secure} --http1.1 -r 0-9,100-1099 {random} | grep -a -c content-range")
    assert several.strip() == "2", several
    made = box.succeed(
        f"{secure} --http1.1 -w '%{{num_connects}} %{{http_code}}\\n' -o /dev/null -o /dev/null -o /dev/null"
        f" {random} {random}.missing {random}"
    )
    assert made.split() == ["1", "200", "0", "404", "0", "200"], made
    # An announced end: curl fails if TLS ends without notice and the length is unknown.
    box.succeed(f"{secure} --http1.1 -f -H 'Connection: close' -o /dev/null {random}")
    before = encrypted_by_the_kernel()
    assert before == tried + 6, (tried, before)
    # The process itself encrypts other versions, as always.
    for flags in ["--http2", "--http1.1 --tls-max 1.2"]:
        assert box.succeed(f"{secure} {flags} {random} | sha256sum") == whole
    assert encrypted_by_the_kernel() == before
    metrics = box.succeed("curl -sf http://127.0.0.1:8091/metrics")
    assert f"\nlinerate_files_offloaded_connections_total {before - tried}\n" in metrics, metrics

with subtest("nobody runs as root"):
    for unit in ["linerate-api", "linerate-files", "linerate-links"]:
        assert user_of(unit) == unit, user_of(unit)

with subtest("the sandbox holds: a service writes to nothing that is not its own"):
    for unit, other in [
        ("linerate-api", "linerate-links"),
        ("linerate-files", "linerate-api"),
        ("linerate-links", "linerate-files"),
    ]:
        inside = f"nsenter -t $(systemctl show -P MainPID {unit}) -m --"
        box.fail(f"{inside} touch /usr/probe")
        box.fail(f"{inside} touch /etc/probe")
        box.fail(f"{inside} touch /var/lib/{other}/probe")
        box.succeed(f"grep -q 'Seccomp:.*2' /proc/$(systemctl show -P MainPID {unit})/status")
        box.succeed(f"grep -q 'NoNewPrivs:.*1' /proc/$(systemctl show -P MainPID {unit})/status")

with subtest("systemd is told that a service is there, and pinged"):
    for unit in ["linerate-api", "linerate-files", "linerate-links"]:
        about = box.get_unit_info(f"{unit}.service")
        assert about["Type"] == "notify", about["Type"]
        # The time of its last ping changes.
        last = about["WatchdogTimestampMonotonic"]
        box.wait_until_fails(f"systemctl show -P WatchdogTimestampMonotonic {unit} | grep -x {last}")
        assert int(about["LimitNOFILE"]) >= 16384

with subtest("connections wait while the service is away"):
    box.succeed("systemctl stop linerate-links.service")
    # One of systemd's sockets starts it.
    assert status("http://box/way") == "307"
    box.wait_for_unit("linerate-links.service")

with subtest("a service that dies comes back"):
    box.succeed("systemctl kill --signal=KILL linerate-files.service")
    box.wait_until_succeeds("curl -sf http://127.0.0.1:8091/readyz")
    assert visitor.succeed("curl -sf http://box:8090/assets/digits") == "0123456789\n"

with subtest("doctor looks at the box every minute, for Prometheus"):
    assert "linerate-doctor.service" in box.succeed("systemctl list-timers --all --no-legend linerate-doctor.timer")
    box.succeed("systemctl is-active linerate-doctor.timer", "systemctl start linerate-doctor.service")
    found = box.succeed("cat /run/linerate-metrics/doctor.prom")
    assert "\nlinerate_doctor_" in found, found
    # The doctor's sandbox hides nothing that it has to read, including certificates. It runs once more, since the
    # timer's run may have started while a service was stopped.
    box.succeed("systemctl start linerate-doctor.service")
    run = box.succeed("systemctl show -P InvocationID linerate-doctor.service").strip()
    said = box.succeed(f"journalctl --sync; journalctl -o cat _SYSTEMD_INVOCATION_ID={run}")
    assert "rules looked at" in said and "os error" not in said, said
    # The exporter reads the file as another user.
    box.succeed("runuser -u nobody -- cat /run/linerate-metrics/doctor.prom")

with subtest("the box counts as healthy"):
    box.succeed("systemctl start linerate-health.service")
