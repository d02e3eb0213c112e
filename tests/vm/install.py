# The installer installs a host onto a machine's disk, with NixOS's own installer, and turns the machine off; the disk
# then boots.

import json

with subtest("the installer asks nobody, and the machine is off"):
    medium.start()
    medium.wait_for_shutdown()

with subtest("what it left boots, is healthy, and answers"):
    box.start()
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-health.service")
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed
    box.wait_until_succeeds("systemctl is-system-running | grep -qx running", 120)
    found = json.loads(box.execute("linerate doctor --profile /etc/linerate/profile.json --json")[1])["findings"]
    # As for the image: the emulator's CPUs and clock.
    assert {finding["rule"] for finding in found} <= {"clock", "cpus", "governor"}, found
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/nowhere") == "404"
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"

with subtest("it takes the whole disk, and can be updated"):
    assert int(box.succeed("df --output=size -B 1 / | tail -n 1")) > 8 * 2**30
    box.succeed("install-generation 2 good")
    assert box.succeed("ls /boot/loader/entries | grep generation-2").split() == ["nixos-generation-2+2.conf"]
