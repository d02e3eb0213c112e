# The console with real drivers, in the units that the host gives it and its helpers: its page shows which queue is
# served where, and what is placed and undone there is what `linerate nic` sees. links keeps everything in the host's own
# PostgreSQL.

import html
import json
import re

CONSOLE = "http://127.0.0.1:8110"
DATABASE = "postgres://linerate-links@%2Frun%2Fpostgresql/linerate-links?connect_timeout=60"
LINKS = f"runuser -u linerate-links -- env LINERATE_LINKS_DATABASE='{DATABASE}' linerate-links"

start_all()
# Waits until the boot is over, whatever its result. From then on, nothing places queues unless the test does.
box.wait_for_unit("multi-user.target", timeout=2400)
box.execute("systemctl is-system-running --wait", timeout=900)
box.succeed("udevadm settle", "systemctl stop 'linerate-nic-*'")
box.execute("linerate nic undo")


def asked(path: str, jar: str = "writer", /, **fields: str) -> tuple[int, str]:
    """Returns the status and the page that somebody with these cookies sees; with fields, those after a posted form."""
    form = "".join(f" --data-urlencode '{name}={value}'" for name, value in fields.items())
    if fields:
        form += f" -H 'Origin: {CONSOLE}'"
    cookies = f"-b /run/{jar}.jar -c /run/{jar}.jar"
    said = box.succeed(f"curl -sS --max-time 120 {cookies} -w '\\n%{{http_code}}' {form} {CONSOLE}{path}")
    page, _, status = said.rpartition("\n")
    return int(status), page


def token(page: str) -> str:
    return page.split('name="csrf" value="')[1].split('"')[0]


def sign_in(scope: str, jar: str) -> str:
    """Signs in with a new key."""
    made = box.succeed(f"{LINKS} key add {jar} --scope {scope} --json")
    key = str(json.loads(made)["key"])
    # The first question to a database may take longer than the console waits.
    retry(lambda _: asked("/sign-in", jar, csrf=token(asked("/sign-in", jar)[1]), key=key)[0] == 303)
    return key


def shown(page: str, card: str) -> list[dict[str, str]]:
    """Returns the rows of a card's queues, by column name."""
    table = page.split(f'aria-label="{card}"')[1].split("</table>")[0]
    rows = []
    for row in re.findall(r"<tr.*?</tr>", table.split("<tbody>")[1], re.DOTALL):
        cells = re.findall(r'<td[^>]*data-label="([^"]*)">(.*?)</td>', row, re.DOTALL)
        rows.append({name: html.unescape(re.sub("<[^>]*>", "", cell)).strip() for name, cell in cells})
    return rows


def affinity(irq: int) -> str:
    return box.succeed(f"cat /proc/irq/{irq}/smp_affinity_list").strip()


def planned(card: str) -> list[dict[str, str]]:
    """Returns the same from `linerate nic plan` and the kernel."""
    interface = json.loads(box.succeed(f"linerate --json nic plan {card}"))["interfaces"][0]
    rows = []
    for queue, placement in zip(interface["queues"], interface["plan"]["placements"]):
        irqs = [interrupt["irq"] for interrupt in queue["interrupts"]]
        now, cpu = affinity(irqs[0]), str(placement["cpu"])
        rows.append(
            {
                "Interrupt": ", ".join(map(str, irqs)),
                "CPU now": now if now == cpu else f"{now} elsewhere",
                "CPU planned": cpu,
            }
        )
    return rows


def is_shown(card: str) -> None:
    """Waits, since a page may be a second old."""
    rows = planned(card)
    last: list[dict[str, str]] = []

    def done(_: bool) -> bool:
        last[:] = [{name: row[name] for name in rows[0]} for row in shown(asked("/queues")[1], card)]
        return last == rows

    try:
        retry(done)
    except Exception as error:
        raise AssertionError(f"{last} instead of {rows}") from error


def masks(card: str) -> str:
    """Returns everything that placement may write, as it is now."""
    irqs = " ".join(f"/proc/irq/{irq}/smp_affinity" for row in planned(card) for irq in row["Interrupt"].split(", "))
    return box.succeed(f"grep -H . {irqs} /sys/class/net/{card}/queues/*/[rx]ps_cpus")


def verified(card: str) -> int:
    return box.execute(f"linerate nic verify {card}")[0]


def helped(action: str, card: str) -> dict[str, str]:
    """Waits for the helper's last log entry, which is this one; the journal has it a little later."""
    last = "journalctl -u linerate-console-helper --no-pager -o cat | grep '\"audit\"' | tail -n 1"
    said = box.wait_until_succeeds(f"{last} | grep '\"action\":\"{action}\",\"target\":\"{card}\"'")
    return dict(json.loads(said))


def visited(code: str) -> str:
    """Returns the status and the target. Whoever is told to wait waits."""
    return box.wait_until_succeeds(
        f"curl -sS --max-time 60 -o /dev/null -w '%{{http_code}} %{{redirect_url}}' http://127.0.0.1/{code} | grep -v ^503"
    ).strip()


with subtest("links are in a PostgreSQL that knows the service by its user"):
    box.wait_for_unit("linerate-links.service")
    box.succeed(f"{LINKS} add https://example.com/first --code first")
    assert visited("first") == "307 https://example.com/first"
    count = "psql -h /run/postgresql -d linerate-links -tAc 'SELECT count(*) FROM links'"
    assert box.succeed(f"runuser -u linerate-links -- {count}").strip() == "1"
    box.fail(f"runuser -u linerate-files -- {count}", "test -e /var/lib/linerate-links/links.db")

with subtest("the console is up, by the user of its unit, and its helpers are not before they are asked"):
    box.wait_for_unit("linerate-console.service")
    assert box.succeed("ps -o user:32= -p $(systemctl show -P MainPID linerate-console)").strip() == "linerate-console"
    for unit in ("linerate-console-helper", "linerate-files-writer"):
        box.succeed(f"systemctl is-active {unit}.socket")
        box.fail(f"systemctl is-active {unit}.service")
    box.wait_until_succeeds("curl -sf http://127.0.0.1:8111/readyz")

with subtest("nobody sees queues who has not signed in, and a key that only reads places none"):
    assert asked("/queues", "nobody")[0] == 303
    sign_in("read", "reader")
    writer = sign_in("write", "writer")

cards = [
    card
    for card in box.succeed("ls /sys/class/net").split()
    if box.execute(f"test -e /sys/class/net/{card}/queues/rx-1 -a -e /sys/class/net/{card}/device")[0] == 0
]
assert cards, "the box has no card with several queues"

for card in cards:
    with subtest(f"{card}: the page shows its queues, their interrupts and CPUs as they are and as planned"):
        # The queues must not be as planned, whatever the driver starts with.
        box.succeed(f"echo f > /proc/irq/{planned(card)[0]['Interrupt'].split(',')[0]}/smp_affinity")
        before = masks(card)
        is_shown(card)
        assert "elsewhere" in shown(asked("/queues")[1], card)[0]["CPU now"]
        assert verified(card) == 3

    with subtest(f"{card}: who may not place it, and whose form it is not, changes nothing"):
        status, page = asked("/queues", "reader")
        assert status == 200 and 'name="action"' not in page, page
        assert asked("/queues", "reader", csrf=token(page), action="apply", interface=card)[0] == 403
        assert asked("/queues", csrf="another", action="apply", interface=card)[0] == 403
        status, page = asked("/queues")
        assert asked("/queues", csrf=token(page), action="apply", interface="lo")[0] == 422
        assert masks(card) == before

    with subtest(f"{card}: placed by the page, nic verify finds it as planned"):
        status, page = asked("/queues", csrf=token(page), action="apply", interface=card)
        assert status == 200 and "Looked at again, all of it is as planned." in page, page
        assert verified(card) == 0
        is_shown(card)
        assert all(row["CPU now"] == row["CPU planned"] for row in planned(card)), planned(card)
        # The audit log contains only the prefix of the key that identifies it.
        assert helped("nic.apply", card)["by"] == f"key {writer[:12]}… from 127.0.0.1"

    with subtest(f"{card}: put back by the page, nic verify finds what there was before"):
        status, page = asked("/queues", csrf=token(page), action="undo", interface=card)
        assert status == 200 and "differ from the plan." in page, page
        assert masks(card) == before, (masks(card), before)
        assert verified(card) == 3
        is_shown(card)
        helped("nic.undo", card)

with subtest("a directory that the page makes is there, and of the user that writes files"):
    status, page = asked("/files")
    assert asked("/files/directory", csrf=token(page), path="/", name="made")[0] == 303
    assert box.succeed("stat -c %U /var/lib/linerate-files/made").strip() == "linerate-files-writer"

with subtest("PostgreSQL is killed: what was acknowledged is there, and links goes on"):
    box.succeed(f"{LINKS} add https://example.com/second --code second")
    processes = box.succeed("systemctl show -P MainPID postgresql.service linerate-links.service").split()
    box.succeed("systemctl kill --signal=KILL postgresql.service")
    box.wait_until_fails(f"systemctl show -P MainPID postgresql.service | grep -x {processes[0]}")
    box.wait_for_unit("postgresql.service")
    assert visited("second") == "307 https://example.com/second"
    box.wait_until_succeeds(f"{LINKS} add https://example.com/third --code third")
    assert visited("third") == "307 https://example.com/third"
    assert box.succeed("systemctl show -P MainPID linerate-links.service").split() == processes[1:]
