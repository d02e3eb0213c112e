# What EC2 knows about an instance, through IMDSv2: its key is accepted for ssh, and its user data are settings. The
# visitor plays the service, and answers nobody without a token.

import json

SERVICE = r"""#!/usr/bin/env bash
# One request of HTTP from stdin, and its answer to stdout.
read -r method path _
token= lifetime=
while IFS= read -r line && line=${line%$'\r'} && [[ -n $line ]]; do
    case ${line,,} in
        x-aws-ec2-metadata-token:*) token=${line#*: } ;;
        x-aws-ec2-metadata-token-ttl-seconds:*) lifetime=${line#*: } ;;
    esac
done
echo "$method $path ${token:-none}" >> /root/asked
answer() { printf 'HTTP/1.1 %s\r\ncontent-length: %s\r\nconnection: close\r\n\r\n%s' "$1" "${#2}" "$2"; }
if [[ $method == PUT && $path == /latest/api/token && $lifetime -ge 1 ]]; then
    answer '200 OK' of-this-instance
elif [[ $token != of-this-instance ]]; then
    answer '401 Unauthorized' ''
elif [[ -f /root/known$path ]]; then
    answer '200 OK' "$(< /root/known$path)"
else
    answer '404 Not Found' ''
fi
"""

visitor.start()
visitor.succeed("mkdir -p /root/known/1.0/meta-data/public-keys/0")
visitor.succeed("ssh-keygen -q -t ed25519 -N '' -f /root/known/key")
visitor.succeed("mv /root/known/key.pub /root/known/1.0/meta-data/public-keys/0/openssh-key")
visitor.succeed("echo i-0123456789abcdef0 > /root/known/1.0/meta-data/instance-id")
visitor.succeed("ssh-keygen -q -t ed25519 -N '' -f /root/host")
# The form in which NixOS reads a host's key: one line each, the private one with | for line feeds.
visitor.succeed(
    "(echo LINERATE_LINKS_PUBLIC_URL=https://go.example; echo SSH_HOST_ED25519_KEY:$(tr '\\n' '|' < /root/host);"
    " echo SSH_HOST_ED25519_KEY_PUB:$(cat /root/host.pub)) > /root/known/1.0/user-data"
)
visitor.succeed(f"cat > /root/service <<'END'\n{SERVICE}END\nchmod 755 /root/service")
visitor.succeed("ip address add 169.254.169.254/32 dev lo")
visitor.succeed(
    "systemd-run --unit=metadata -E PATH=$PATH $(command -v systemd-socket-activate)"
    " --accept --inetd --listen 169.254.169.254:80 /root/service"
)
visitor.wait_for_open_port(80, "169.254.169.254")

box.start()
# On EC2, the metadata service is reachable before anything starts. Here the unit starts again once there is a route.
# The unit that has been asking since boot no longer waits for a token, and would continue without one.
box.succeed("systemctl stop fetch-ec2-metadata.service")
box.wait_until_succeeds("ip route replace 169.254.169.254 via $(getent hosts visitor | cut -d ' ' -f 1)")
box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
# Without a key from user data, the box has created its own.
box.succeed("rm /var/lib/ssh/ssh_host_ed25519_key*")
for unit in ["fetch-ec2-metadata", "linerate-user-data", "apply-ec2-data", "linerate-links"]:
    box.succeed(f"systemctl restart {unit}.service")

with subtest("user data are settings"):
    token = json.loads(
        box.succeed(
            "runuser -u linerate-links -- linerate-links key add test --scope write --json"
            " --database /var/lib/linerate-links/links.db"
        )
    )["key"]
    made = box.succeed(
        f"curl -sf -H 'Authorization: Bearer {token}' --json '{{\"target\": \"https://example.com/\"}}'"
        " http://127.0.0.1:8081/api/v1/links"
    )
    assert "https://go.example/" in made, made
    # Only from this run: another test may have run on the machine before.
    run = box.succeed("systemctl show -P InvocationID linerate-user-data.service").strip()
    assert "are no settings" not in box.succeed(f"journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID={run}")

with subtest("the box has the host's key of its user data, and tells it"):
    box.succeed("systemctl restart ssh.service 2>/dev/null || systemctl restart sshd.service")
    box.succeed("systemctl restart print-host-key.service")
    box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
    wanted = visitor.succeed("cut -d ' ' -f 1,2 /root/host.pub").strip()
    assert wanted in visitor.succeed("ssh-keyscan -T 120 -t ed25519 box"), wanted
    assert box.succeed("cut -d ' ' -f 1,2 /var/lib/ssh/ssh_host_ed25519_key.pub").strip() == wanted
    assert box.succeed("stat -c %a /var/lib/ssh/ssh_host_ed25519_key").strip() == "600"

with subtest("the instance's key comes in, and no other"):
    box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
    port = box.succeed("ss -Hltnp | grep sshd | head -n 1 | sed 's/.*:\\([0-9]*\\) .*:.*/\\1/'").strip()
    ssh = f"ssh -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes root@box"
    box.wait_for_unit("apply-ec2-data.service")
    assert visitor.succeed(f"{ssh} -i /root/known/key hostname").strip() == "box"
    visitor.succeed("ssh-keygen -q -t ed25519 -N '' -f /root/another")
    visitor.fail(f"{ssh} -i /root/another true")

with subtest("a token was asked for, and nothing without one"):
    # A client that only checks whether somebody listens sends no request.
    asked = visitor.succeed("grep -E '^[A-Z]' /root/asked").splitlines()
    assert asked[0].startswith("PUT /latest/api/token "), asked
    assert any(line.startswith("GET /1.0/user-data ") for line in asked), asked
    assert all(line.startswith("PUT ") or line.endswith(" of-this-instance") for line in asked), asked

with subtest("links and files answer from outside"):
    for service in (80, 8090):
        box.wait_for_open_port(service)
        assert visitor.succeed(f"curl -s -o /dev/null -w '%{{http_code}}' http://box:{service}/nowhere") == "404"
