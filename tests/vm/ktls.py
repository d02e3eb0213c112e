# What the kernel's TLS (kTLS) saves linerate-files, in instructions: the guest's clock counts these. The first rows are
# encrypted by the kernel, the others by the process, in turns.

import json
from statistics import median

SITE = "/var/lib/linerate-files/assets"
SECURE = "https://127.0.0.1:8443/assets"
# Names, sizes in bytes, and how many are requested over one connection in a row.
FILES = {"1KB": (1 << 10, 400), "16KB": (16 << 10, 400), "2.4MB": (2_400_000, 60)}
ROUNDS = 3

start_all()
box.wait_for_unit("multi-user.target")
box.wait_until_succeeds("curl -sf http://127.0.0.1:8091/readyz")
box.succeed(f"mkdir -p {SITE}")
for name, (size, _) in FILES.items():
    box.succeed(f"head -c {size} /dev/urandom > {SITE}/{name}")


def instructions() -> int:
    """Those of all threads of linerate-files, in the kernel and in the process: a nanosecond is one (-icount shift=0)."""
    process = box.succeed("systemctl show -P MainPID linerate-files").strip()
    spent = box.succeed(f"cat /proc/{process}/task/*/schedstat")
    return sum(int(line.split()[0]) for line in spent.splitlines())


def by_the_kernel() -> int:
    counts = dict(line.split() for line in box.succeed("cat /proc/net/tls_stat").splitlines())
    return int(counts["TlsTxSw"])


def restart(own: bool) -> None:
    directory = "/run/systemd/system/linerate-files.service.d"
    box.succeed(f"mkdir -p {directory}")
    box.succeed(f"printf '[Service]\\nEnvironment=LINERATE_FILES_NO_KTLS={json.dumps(own)}\\n' > {directory}/ktls.conf")
    box.succeed("systemctl daemon-reload", "systemctl restart linerate-files.service")
    box.wait_until_succeeds("curl -sf http://127.0.0.1:8091/readyz")


def requested(name: str, count: int) -> None:
    box.succeed(f"curl -sSf --insecure --http1.1 --tlsv1.3 --max-time 600 -o /dev/null '{SECURE}/{name}?[1-{count}]'")


def measured() -> dict[str, float]:
    """Instructions a request, by file."""
    result = {}
    for name, (_, count) in FILES.items():
        # The first requests open the file, and copy what is hot.
        requested(name, 20)
        before = instructions()
        requested(name, count)
        result[name] = (instructions() - before) / count
    return result


rows: dict[bool, list[dict[str, float]]] = {False: [], True: []}
for _ in range(ROUNDS):
    for own in rows:
        restart(own)
        before = by_the_kernel()
        rows[own].append(measured())
        encrypted = by_the_kernel() - before
        assert (encrypted == 0) if own else (encrypted == 2 * len(FILES)), (own, encrypted)

print(f"{'':8} {'kTLS':>12} {'process':>12} {'ratio':>7}   instructions a request, kernel and process, medians")
for name in FILES:
    kernel, process = (median(row[name] for row in rows[own]) for own in (False, True))
    print(f"{name:8} {kernel:12.0f} {process:12.0f} {kernel / process:7.2f}")
