# What a stranger on the network can reach on the box: the services, ssh with a key, and nothing else.

start_all()
box.wait_for_unit("linerate-links.service")
box.wait_for_unit("linerate-files.service")
visitor.wait_for_unit("multi-user.target")

box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
ssh_port = box.succeed("ss -Hltnp | grep sshd | head -n 1 | sed 's/.*:\\([0-9]*\\) .*:.*/\\1/'").strip()
ssh = f"ssh -p {ssh_port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=20 root@box"

with subtest("the services are let in"):
    for port in [80, 8090, 8100, 8443, 8444]:
        visitor.wait_for_open_port(port, "box")

with subtest("nothing else is, and is not even refused"):
    # On the box itself, somebody listens everywhere on each of these.
    for port in [12345, 9100]:
        box.execute(f"nc -lk {port} >/dev/null 2>&1 &")
        box.wait_for_open_port(port)
    for port in [8081, 8091, 8101]:
        box.wait_for_open_port(port)
    for port in [8081, 8091, 8101, 9100, 12345]:
        # curl exits with 28 if nobody answers, and with 7 if somebody refuses.
        status, _ = visitor.execute(f"curl -s --max-time 3 telnet://box:{port} </dev/null")
        assert status == 28, f"port {port}: curl ended with {status}"

with subtest("connections of the services are not tracked, others are"):
    visitor.succeed("curl -sk http://box/ https://box:8443/ https://box:8444/ http://box:8090/ http://box:8100/")
    visitor.execute(f"timeout 5 nc box {ssh_port} </dev/null")
    tracked = box.succeed("conntrack -L -p tcp")
    assert f"dport={ssh_port} " in tracked, tracked
    # The box's own requests are tracked until they are answered.
    others = [line for line in tracked.splitlines() if "src=127.0.0.1" not in line]
    for port in [80, 8090, 8100, 8443, 8444]:
        assert not [line for line in others if f"dport={port} " in line], others

with subtest("ssh takes no password"):
    status, said = visitor.execute(f"{ssh} -o PreferredAuthentications=password,keyboard-interactive true 2>&1")
    assert status == 255 and "Permission denied (publickey)" in said, said

with subtest("ssh takes a key that it knows, and no other"):
    visitor.succeed("ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 <<< y")
    visitor.fail(f"{ssh} -o BatchMode=yes true")
    key = visitor.succeed("cat /root/.ssh/id_ed25519.pub").strip()
    box.succeed(f"install -d -m 700 /root/.ssh; echo '{key}' > /root/.ssh/authorized_keys")
    assert visitor.succeed(f"{ssh} -o BatchMode=yes hostname").strip() == "box"

with subtest("forged senders are dropped"):
    # An address that the box reaches through none of its cards (reverse path filter).
    visitor.succeed("ip address add 10.99.0.1/32 dev lo")
    status, _ = visitor.execute("curl -s --interface 10.99.0.1 --max-time 3 http://box/")
    assert status == 28, f"curl ended with {status}"
