# The image boots from its firmware, grows to its disk's size, and serves.

import json

start_all()
box.wait_for_unit("multi-user.target")

with subtest("the box counts as healthy, and no unit has failed"):
    box.wait_for_unit("linerate-health.service")
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed
    box.wait_until_succeeds("systemctl is-system-running | grep -qx running", 120)

with subtest("its root has grown to the disk"):
    assert int(box.succeed("df --output=size -B 1 / | tail -n 1")) > 8 * 2**30
    assert box.succeed("systemctl show -P ActiveState growpart.service").strip() == "active"

with subtest("nobody but the emulator is to blame for what doctor finds"):
    found = json.loads(box.execute("linerate doctor --profile /etc/linerate/profile.json --json")[1])["findings"]
    # The emulator has two CPUs, whose frequency can't change, and no clock to synchronise with.
    assert {finding["rule"] for finding in found} <= {"clock", "cpus", "governor"}, found

with subtest("services answer"):
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/nowhere") == "404"
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"

with subtest("the first generation is on no trial, since there is nothing to fall back to"):
    assert "+" not in box.succeed("ls /boot/loader/entries")

with subtest("what is on the EFI partition is root's alone"):
    assert "fmask=0077" in box.succeed("findmnt --noheadings --output OPTIONS /boot")
    assert box.succeed("stat -c %a /boot/loader/loader.conf").strip() == "700"
