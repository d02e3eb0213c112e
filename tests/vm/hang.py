# A generation that hangs before it can be judged: the watchdog reboots the box until its tries are used up, and then
# the previous generation boots.

entries = "/boot/loader/entries"


def booted() -> str:
    """Returns the entry that the boot loader chose, without its counter."""
    variable = "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    # UTF-16, after four bytes of attributes.
    selected = box.succeed(f"cat {variable} | tail -c +5 | tr -d '\\0'")
    return selected.removesuffix(".conf").split("+")[0]


start_all()

with subtest("systemd guards the box by its watchdog"):
    box.wait_for_unit("multi-user.target")
    box.wait_for_file("/dev/watchdog0")
    box.wait_until_succeeds("grep -x active /sys/class/watchdog/watchdog0/state")
    assert box.succeed("cat /sys/class/watchdog/watchdog0/timeout").strip() == "30"
    assert booted() == "nixos-generation-1", booted()

with subtest("a generation that hangs is ended by the watchdog, twice, and gives the box back"):
    box.succeed("install-generation 2 hanging")
    box.shutdown()
    for _ in range(2):
        box.start()
        # Nothing but the watchdog ends this boot.
        box.wait_for_shutdown()
    box.start()
    box.wait_for_unit("multi-user.target")
    assert booted() == "nixos-generation-1", booted()
    assert box.succeed(f"cd {entries} && ls | grep generation-2").split() == ["nixos-generation-2+0-2.conf"]
    box.wait_for_unit("linerate-links.service")
    box.wait_for_unit("linerate-health.service")
