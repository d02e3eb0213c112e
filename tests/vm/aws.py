# The host for EC2, as far as it works without EC2: it boots, is as declared, and takes settings from user data.

import json

box.start()
box.wait_for_unit("multi-user.target")
box.wait_for_unit("linerate-health.service")
profile = json.loads(box.succeed("cat /etc/linerate/profile.json"))

with subtest("services answer, and no unit has failed"):
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/nowhere") == "404"
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed
    box.wait_until_succeeds("systemctl is-system-running | grep -qx running", 120)

with subtest("nobody but the emulator is to blame for what doctor finds"):
    found = json.loads(box.execute("linerate doctor --profile /etc/linerate/profile.json --json")[1])["findings"]
    # The emulator has two CPUs, whose frequency can't change, and no clock to synchronise with.
    assert {finding["rule"] for finding in found} <= {"clock", "cpus", "governor"}, found

with subtest("its root has grown to the disk"):
    assert int(box.succeed("df --output=size -B 1 / | tail -n 1")) > 8 * 2**30

with subtest("the kernel is set as declared"):
    parameters = box.succeed("cat /proc/cmdline").split()
    declared = {"boot.panic_on_fail", "nvme_core.io_timeout=4294967295"}
    assert declared <= set(parameters), parameters
    # NixOS's module for EC2 sets another value than ours. The last one counts, and with both, a panic reboots the box.
    panic = [parameter for parameter in parameters if parameter.startswith("panic=")][-1]
    assert box.succeed("sysctl -n kernel.panic").strip() == panic.removeprefix("panic=") != "0", parameters
    for name, value in profile["kernel"]["sysctl"].items():
        assert box.succeed(f"sysctl -n {name}").split() == str(value).split(), name

with subtest("services are bounded as declared"):
    for unit, declared in profile["services"].items():
        about = box.get_unit_info(unit)
        assert about["LimitNOFILE"] == str(declared["limits"]["open_files"]), about["LimitNOFILE"]
        assert about["TasksMax"] == str(declared["limits"]["tasks"]), about["TasksMax"]

with subtest("nobody else takes a service's port while it is down"):
    box.succeed("systemctl stop linerate-links.service")
    status, said = box.execute("runuser -u nobody -- timeout 20 nc -l 80 2>&1")
    assert status not in (0, 124) and "denied" in said, (status, said)
    box.succeed("systemctl start linerate-links.service")

with subtest("user data become settings, and nothing else"):
    # Where NixOS puts what it fetched.
    box.succeed("mkdir -p /etc/ec2-metadata")
    lines = ["#!/bin/sh", "LINERATE_LINKS_PUBLIC_URL=https://go.example", "PATH=/nowhere", "touch /root/ran"]
    box.succeed(f"printf '%s\\n' {' '.join(repr(line) for line in lines)} > /etc/ec2-metadata/user-data")
    # A byte that isn't text, at which text tools stop.
    box.succeed("printf 'a\\0b\\n' >> /etc/ec2-metadata/user-data")
    box.succeed("systemctl restart linerate-user-data.service linerate-links.service")
    token = json.loads(
        box.succeed(
            "runuser -u linerate-links -- linerate-links key add aws --scope write --json"
            " --database /var/lib/linerate-links/links.db"
        )
    )["key"]
    made = json.loads(
        box.succeed(
            f"curl -sf -H 'Authorization: Bearer {token}' --json '{{\"target\": \"https://example.com/\"}}'"
            " http://127.0.0.1:8081/api/v1/links"
        )
    )
    assert "https://go.example/" in str(made), made
    box.fail("test -e /root/ran")
    said = box.succeed("journalctl -b --no-pager -o cat -u linerate-user-data.service")
    assert "3 lines of the user data are no settings" in said, said

with subtest("settings stay while the unit that reads them is stopped, and go with the user data"):
    settings = "/run/linerate-user-data/links"
    box.succeed("systemctl stop linerate-user-data.service", f"grep -q https://go.example {settings}")
    box.succeed(": > /etc/ec2-metadata/user-data", "systemctl start linerate-user-data.service")
    assert box.succeed(f"cat {settings}") == "", box.succeed(f"cat {settings}")
