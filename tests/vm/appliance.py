# The host as an image boots from its firmware, allows writes only where they belong, verifies that it runs what was
# built, and gives its disk a second slot and /var.

import json

start_all()
box.wait_for_unit("multi-user.target")
box.wait_for_unit("linerate-health.service")

with subtest("the box counts as healthy, and no unit has failed"):
    failed = box.succeed("systemctl list-units --failed --plain --no-legend")
    assert failed == "", failed
    box.wait_until_succeeds("systemctl is-system-running | grep -qx running", 120)

with subtest("services answer"):
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/nowhere") == "404"
    assert box.succeed("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8090/nowhere") == "404"

with subtest("nothing but /var, /tmp and /run is written"):
    for place in ("/", "/etc", "/nix/store", "/usr"):
        box.fail(f"touch {place}/x")
    # On EC2, it is in memory, for the instance's key.
    assert box.execute("touch /root/x")[0] != 0 or box.succeed("findmnt -no FSTYPE /root").strip() == "tmpfs"
    box.succeed("touch /var/x /tmp/x /run/x && rm /var/x /tmp/x /run/x")
    assert box.succeed("findmnt -no SOURCE,FSTYPE /nix/store").split() == ["/dev/mapper/usr", "erofs"]

with subtest("doctor sees that what runs is what was built, and would see another store"):
    profile = json.loads(box.succeed("cat /etc/linerate/profile.json"))
    for store, expected in ((profile["image"]["store"], []), ("/var", ["/var"])):
        profile["image"]["store"] = store
        box.succeed(f"echo '{json.dumps({'image': profile['image']})}' >/run/profile.json")
        # It exits with 3 if it has found something.
        found = json.loads(box.execute("linerate --json doctor --profile /run/profile.json")[1])
        assert "image" not in found["idle"], found
        assert [one["subject"] for one in found["findings"] if one["rule"] == "image"] == expected, found

with subtest("the disk has a second slot, with nothing in it, and all that is left is /var's"):
    table = json.loads(box.succeed("sfdisk --json $(ls /dev/nvme0n1 2>/dev/null || echo /dev/vda)"))["partitiontable"]["partitions"]
    assert [part["name"] for part in table] == ["esp", "verity_1", "store_1", "_empty", "_empty", "var"], table
    assert int(box.succeed("df --output=size -B 1 /var | tail -n 1")) > 10**9
