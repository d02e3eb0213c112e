# A generation that hangs before it can be judged: the watchdog reboots the box, and when its tries are used up, the
# previous generation boots.

entries = "/boot/loader/entries"


def booted() -> str:
    """Returns the entry that the boot loader chose, without its counter."""
    variable = "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    # UTF-16, after four bytes of attributes.
    selected = box.succeed(f"cat {variable} | tail -c +5 | tr -d '\\0'")
    return selected.removesuffix(".conf").split("+")[0]


def generations() -> list[int]:
    """Returns the generations that have an entry."""
    names = box.succeed(f"ls {entries} | grep '^nixos-generation-'").split()
    return [int(name.removeprefix("nixos-generation-").removesuffix(".conf").split("+")[0]) for name in names]


start_all()

with subtest("systemd guards the box by its watchdog"):
    box.wait_for_unit("multi-user.target")
    box.wait_for_file("/dev/watchdog0")
    box.wait_until_succeeds("grep -x active /sys/class/watchdog/watchdog0/state")
    assert box.succeed("cat /sys/class/watchdog/watchdog0/timeout").strip() == "30"

with subtest("a generation that hangs is ended by the watchdog, and gives the box back"):
    # Other tests may have installed some on this machine.
    previous = max(generations())
    hanging = previous + 1
    box.succeed(f"install-generation {hanging} hanging")
    # As if it had been tried once: the test of updates shows that generations are tried twice.
    entry = f"{entries}/nixos-generation-{hanging}"
    box.succeed(f"mv {entry}+2.conf {entry}+1-1.conf")
    box.shutdown()
    box.start()
    # Nothing but the watchdog ends this boot.
    box.wait_for_shutdown()
    box.start()
    box.wait_for_unit("multi-user.target")
    assert booted() == f"nixos-generation-{previous}", booted()
    left = box.succeed(f"cd {entries} && ls | grep '^nixos-generation-{hanging}[.+]'").split()
    assert left == [f"nixos-generation-{hanging}+0-2.conf"], left
    box.wait_for_unit("linerate-links.service")
    box.wait_for_unit("linerate-health.service")
