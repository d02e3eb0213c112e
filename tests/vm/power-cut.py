# The power fails while links and users are being created: what was acknowledged to another machine is there afterwards.
# Both use SQLite.

import json

database = "/var/lib/linerate-links/links.db"
writers = 3

start_all()
box.wait_for_unit("linerate-links.service")
visitor.wait_for_open_port(80, "box")
visitor.wait_for_open_port(8100, "box")

# The API only serves this machine, so another one uses ssh to reach it.
box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
ssh_port = box.succeed("ss -Hltnp | grep sshd | head -n 1 | sed 's/.*:\\([0-9]*\\) .*:.*/\\1/'").strip()
visitor.succeed("ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 <<< y")
key = visitor.succeed("cat /root/.ssh/id_ed25519.pub").strip()
box.succeed(f"install -d -m 700 /root/.ssh; echo '{key}' > /root/.ssh/authorized_keys; sync")
token = json.loads(
    box.succeed(
        "runuser -u linerate-links -- linerate-links key add test --scope write --json"
        f" --database {database}; sync"
    )
)["key"]


def write(turn: int) -> None:
    """Creates links until the power fails, and keeps the codes of the acknowledged ones."""
    visitor.wait_for_open_port(int(ssh_port), "box")
    visitor.succeed(
        f"ssh -p {ssh_port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
        " -N -L 8081:127.0.0.1:8081 root@box > tunnel 2>&1 &"
    )
    visitor.wait_for_open_port(8081)
    for writer in range(writers):
        code = f"cut-{turn}-{writer}-"
        visitor.succeed(
            f"(for i in $(seq 1000); do curl -sf -o /dev/null --max-time 30 -H 'Authorization: Bearer {token}'"
            f""" --json '{{"target": "https://example.com/'$i'", "code": "{code}'$i'"}}'"""
            f" http://127.0.0.1:8081/api/v1/links && echo {code}$i || break; done) > acknowledged-{turn}-{writer}"
            " 2> errors &"
        )
        visitor.succeed(
            "(for i in $(seq 1000); do curl -sf --max-time 30"
            f""" --json '{{"name": "Ada", "email": "a'$i'-{turn}-{writer}@example.com"}}' http://box:8100/v1/users"""
            """ | sed -n 's/.*"id":"\\([^"]*\\)".*/\\1/p' | grep . || break; done)"""
            f" > users-{turn}-{writer} 2> errors &"
        )


for turn in range(2):
    with subtest(f"power cut {turn + 1}"):
        write(turn)
        visitor.wait_until_succeeds(f"test $(cat acknowledged-{turn}-* | wc -l) -ge 30")
        visitor.wait_until_succeeds(f"test $(cat users-{turn}-* | wc -l) -ge 30")
        box.crash()
        # Every writer has noticed.
        visitor.wait_until_fails("pgrep curl")
        visitor.execute("pkill -x ssh")
        codes = visitor.succeed("cat acknowledged-*").split()
        users = visitor.succeed("cat users-*").split()
        box.start()
        box.wait_for_unit("linerate-links.service")
        # It is ready before its network is.
        visitor.wait_for_open_port(80, "box")
        box.succeed(f"runuser -u linerate-links -- linerate-links check --database {database}")
        urls = " ".join(f"-o /dev/null http://box/{code}" for code in codes)
        statuses = visitor.succeed(f"curl -s -w '%{{http_code}}\\n' {urls}").split()
        others = [(code, status) for code, status in zip(codes, statuses, strict=True) if status != "307"]
        assert not others, others
        visitor.wait_for_open_port(8100, "box")
        urls = " ".join(f"-o /dev/null http://box:8100/v1/users/{user}" for user in users)
        statuses = visitor.succeed(f"curl -s -w '%{{http_code}}\\n' {urls}").split()
        lost = [(user, status) for user, status in zip(users, statuses, strict=True) if status != "200"]
        assert not lost, lost
        print(f"    {len(codes)} links and {len(users)} users were acknowledged, and all are there")
