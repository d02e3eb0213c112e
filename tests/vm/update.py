# A whole host is updated. At night the box updates itself. The running system is switched to another generation, and
# back. A generation falls back to the previous one without help if it has a broken service, if doctor finds it
# unhealthy, if its kernel panics, or if it hangs; a good one stays. Stored data outlives all of them.

import json

database = "/var/lib/linerate-links/links.db"
entries = "/boot/loader/entries"


def booted() -> str:
    """Returns the entry that the boot loader chose, without its counter."""
    variable = "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    # UTF-16, after four bytes of attributes.
    selected = box.succeed(f"cat {variable} | tail -c +5 | tr -d '\\0'")
    return selected.removesuffix(".conf").split("+")[0]


def entries_of(generation: int) -> list[str]:
    return box.succeed(f"cd {entries} && ls | grep '^nixos-generation-{generation}[.+]' || true").split()


def answered() -> str:
    return box.succeed("curl -s -o /dev/null --max-time 20 -w '%{http_code} %{redirect_url}' http://127.0.0.1/kept")


def reboot() -> None:
    box.shutdown()
    box.start()


start_all()

with subtest("a box whose only generation is good serves"):
    box.wait_for_unit("multi-user.target")
    box.wait_for_unit("linerate-links.service")
    assert booted() == "nixos-generation-1", booted()
    box.succeed(
        "runuser -u linerate-links -- linerate-links add https://example.com/kept --code kept"
        f" --database {database}"
    )
    assert answered() == "307 https://example.com/kept", answered()

with subtest("root comes in by the key on the EFI partition, and by no other"):
    box.succeed(
        "for key in known other; do ssh-keygen -q -t ed25519 -N '' -f /root/$key; done",
        "cp /root/known.pub /boot/authorized_keys",
        "install -d -m 700 /root/.ssh && cp /root/other.pub /root/.ssh/authorized_keys",
    )
    box.wait_until_succeeds("ss -Hltnp | grep -q sshd")
    port = box.succeed("ss -Hltnp | grep sshd | head -n 1 | sed 's/.*:\\([0-9]*\\) .*:.*/\\1/'").strip()
    ssh = f"ssh -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes root@127.0.0.1"
    assert box.succeed(f"{ssh} -i /root/known id -un").strip() == "root"
    status, said = box.execute(f"{ssh} -i /root/other true 2>&1")
    assert status == 255 and "Permission denied" in said, said

with subtest("an update whose entries cannot be written fails"):
    install = "/nix/var/nix/profiles/system/bin/switch-to-configuration boot 2>&1"
    # NixOS's script looks for the boot loader before it writes any.
    box.succeed("mkdir /boot/away && mv /boot/EFI/[Bs]* /boot/away")
    status, said = box.execute(install)
    assert status != 0 and "could not find any previously installed systemd-boot" in said, (status, said)
    box.succeed("mv /boot/away/* /boot/EFI && rmdir /boot/away", install)

with subtest("a generation that is on no trial does not boot again when the box falls ill"):
    box.succeed("systemctl start linerate-fall-back.service")
    assert box.succeed("systemctl show -P ConditionResult linerate-fall-back.service").strip() == "no"


def processes() -> dict[str, str]:
    """Returns the serving processes, by name."""
    return {name: box.succeed(f"systemctl show -P MainPID linerate-{name}").strip() for name in ("links", "files")}


def program() -> str:
    """Returns the file that links runs."""
    return box.succeed("readlink /proc/$(systemctl show -P MainPID linerate-links)/exe").strip()


def night(boot: int) -> str:
    """Returns what the unit of nightly updates, and systemd about it, logged in this boot."""
    return box.succeed(f"journalctl -b {boot} --no-pager -o cat -u nixos-upgrade")


with subtest("at night the box takes what is offered, and boots into it where only a program is another"):
    box.succeed("offer-generation program")
    older = program()
    parts = "readlink -f /run/booted-system/{initrd,kernel,kernel-modules}"
    booted_parts = box.succeed(parts)
    # It boots by itself, in the minute after its update.
    box.succeed("systemctl start --no-block nixos-upgrade.service")
    box.wait_for_shutdown()
    box.start()
    box.wait_for_unit("systemd-bless-boot.service")
    built = box.succeed("readlink -f /run/current-system").strip()
    assert f"booting {built}\n" in night(-1), night(-1)
    assert any(line.startswith("Finished ") and "NixOS Upgrade" in line for line in night(-1).splitlines()), night(-1)
    assert box.succeed("readlink -f /nix/var/nix/profiles/system-1-link/etc/generations/program").strip() == built, built
    assert "-changed/" not in older and "-linerate-links-changed/" in program(), (older, program())
    assert box.succeed(parts) == booted_parts
    assert answered() == "307 https://example.com/kept", answered()

with subtest("the generation of that night was on trial, is good, and the console says so"):
    counted = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    assert "nixos-generation-2+1-1.conf" in box.succeed(f"cat {counted} | tail -c +5 | tr -d '\\0'")
    assert booted() == "nixos-generation-2", booted()
    assert entries_of(2) == ["nixos-generation-2.conf"], entries_of(2)
    made = box.succeed(
        f"runuser -u linerate-links -- linerate-links key add night --scope read --json --database {database}"
    )
    key = json.loads(made)["key"]
    box.succeed(f"systemd-run --quiet --unit=console /run/current-system/sw/bin/linerate console --token {key}")
    box.wait_for_open_port(8110)
    page = box.succeed("curl -sS --fail --max-time 120 http://127.0.0.1:8110/")
    for name, value in {"Generation": "2", "Trial": "good"}.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page, page
    box.succeed("systemctl stop console")

with subtest("a generation that is good by now does not boot again when the box falls ill"):
    box.succeed("systemctl start linerate-fall-back.service")
    assert box.succeed("systemctl show -P Result linerate-fall-back.service").strip() == "exec-condition"

with subtest("a root that already fills its disk is not grown again"):
    assert box.succeed("systemctl show -P Result growpart.service").strip() == "exec-condition"

with subtest("in a night that offers nothing new it goes on"):
    box.succeed("systemctl start nixos-upgrade.service", timeout=900)
    assert "nothing has changed" in night(0), night(0)
    box.fail("test -e /run/systemd/shutdown/scheduled")
    assert entries_of(2) == ["nixos-generation-2.conf"], entries_of(2)

with subtest("the running system is switched, and what did not change goes on"):
    before = processes()
    box.succeed("install-generation 3 moved switch")
    after = processes()
    assert after["links"] != before["links"] and after["files"] == before["files"], (before, after)
    settings = "$(systemctl show -P ExecStart linerate-links | grep -o '/nix/store/[^ ;]*[.]toml' | head -n 1)"
    box.succeed(f"grep -q http://moved {settings}")
    assert answered() == "307 https://example.com/kept", answered()

with subtest("systemd guards the box by its watchdog"):
    box.wait_for_file("/dev/watchdog0")
    box.wait_until_succeeds("grep -x active /sys/class/watchdog/watchdog0/state")
    assert box.succeed("cat /sys/class/watchdog/watchdog0/timeout").strip() == "60"


def said_by_gate(boot: int) -> str:
    """Returns what the gate, and systemd about it, logged in an earlier boot."""
    return box.succeed(
        f"journalctl -b {boot} --no-pager -o cat -u linerate-links -u linerate-health -u linerate-fall-back"
    )


def failed(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("Failed to start")]


def tried(generation: int) -> None:
    """Sets a generation's counter as if it had been tried once: the one that panics shows that each is tried twice."""
    assert entries_of(generation) == [f"nixos-generation-{generation}+2.conf"], entries_of(generation)
    box.succeed(f"cd {entries} && mv nixos-generation-{generation}+2.conf nixos-generation-{generation}+1-1.conf")


with subtest("bad generations are on trial, and give the box back by themselves to the good one that was switched to"):
    # One with a broken service, one in which only doctor finds a fault, one whose kernel panics, and one that hangs
    # before it can be judged.
    bad = {4: "broken", 5: "ill", 6: "panicking", 7: "hanging"}
    for generation, name in bad.items():
        on_trial = entries_of(generation - 1)
        box.succeed(f"install-generation {generation} {name}")
        assert entries_of(generation - 1) == on_trial, (on_trial, entries_of(generation - 1))
        if name != "panicking":
            tried(generation)
    assert entries_of(3) == ["nixos-generation-3+2.conf"], entries_of(3)
    assert entries_of(6) == ["nixos-generation-6+2.conf"], entries_of(6)
    # Five newer ones have an entry, and the one that runs too.
    assert entries_of(1) == [] and entries_of(2) == ["nixos-generation-2.conf"], (entries_of(1), entries_of(2))
    reboot()
    # The box reboots without being told to: once for each of them, and twice for the one that panics, which takes least.
    for _ in range(len(bad) + 1):
        box.wait_for_shutdown()
        box.start()
    box.wait_for_unit("systemd-bless-boot.service")
    assert booted() == "nixos-generation-3", booted()
    assert entries_of(3) == ["nixos-generation-3.conf"], entries_of(3)
    for generation in bad:
        left = entries_of(generation)
        assert left == [f"nixos-generation-{generation}+0-2.conf"], left
    box.succeed(f"grep -q http://moved {settings}")

with subtest("a generation falls back for a broken service, and for what only doctor finds"):
    gate = "Whether this boot is a good one"
    broken = said_by_gate(-1)
    assert any(gate in line for line in failed(broken)), broken
    assert any(gate not in line for line in failed(broken)), broken
    assert "Boot again, into the generation before" in broken, broken
    ill = said_by_gate(-2)
    assert len(failed(ill)) == 1 and gate in failed(ill)[0], ill
    assert "no such interface" in ill, ill
    assert "Boot again, into the generation before" in ill, ill

with subtest("what was stored before is there"):
    box.wait_for_unit("linerate-links.service")
    box.wait_for_unit("linerate-health.service")
    assert answered() == "307 https://example.com/kept", answered()

with subtest("a generation that was switched to is taken back by hand, and stays so"):
    profile = "/nix/var/nix/profiles/system"
    box.wait_for_unit("linerate-links.service")
    before = processes()
    box.succeed("install-generation 8 good switch")
    assert entries_of(8) == ["nixos-generation-8+2.conf"], entries_of(8)
    assert entries_of(3) == ["nixos-generation-3.conf"], entries_of(3)
    box.succeed(f"nix-env --profile {profile} --switch-generation 3", f"{profile}/bin/switch-to-configuration switch")
    assert processes()["files"] == before["files"], (before, processes())
    assert box.succeed("readlink -f /run/current-system") == box.succeed("readlink -f /run/booted-system")
    reboot()
    box.wait_for_unit("linerate-links.service")
    assert booted() == "nixos-generation-3", booted()
    assert answered() == "307 https://example.com/kept", answered()
