#!/usr/bin/env python3
"""What the unit nixos-upgrade does at night, with its own scripts, which .ci/nix.sh evaluates and this reads from
stdin.

systemd's part is simulated here: a oneshot's ExecStartPost runs if its ExecStart has succeeded, and its StateDirectory
exists. nixos-rebuild and shutdown are stand-ins that record their arguments. In a guest, tests/vm/update.py starts the
unit itself, twice.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

UNIT = json.load(sys.stdin)
REBOOT = pathlib.Path(__file__).parents[1] / "modules/appliance/reboot.sh"

# Installs a generation, as for `boot`, or fails.
REBUILD = """\
#!/usr/bin/env bash
echo "$@" >>"$BOX/rebuild"
[[ -n ${NEXT:-} ]] || exit 1
ln -sfn "$BOX/$NEXT" "$BOX/nix/var/nix/profiles/system"
"""
SHUTDOWN = """\
#!/usr/bin/env bash
echo "$@" >>"$BOX/shutdown"
"""


class Nights(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.box = pathlib.Path(directory.name)
        programs = {
            "linerate-reboot": f"#!/usr/bin/env bash\n{REBOOT.read_text()}",
            "nixos-rebuild": REBUILD,
            "shutdown": SHUTDOWN,
        }
        for name in ("bin", "run", "nix/var/nix/profiles"):
            (self.box / name).mkdir(parents=True)
        for name, text in programs.items():
            (self.box / "bin" / name).write_text(text)
            (self.box / "bin" / name).chmod(0o755)
        self.system("today", kernel="6.18.1", program="1")
        self.boots("today")

    def system(self, name, **parts):
        (self.box / name).mkdir()
        for part, version in parts.items():
            (self.box / name / part).symlink_to(f"/nix/store/{part}-{version}")

    def boots(self, name):
        booted = self.box / "run/booted-system"
        booted.unlink(missing_ok=True)
        booted.symlink_to(self.box / name)

    def script(self, name):
        """Returns a script that calls programs by name, and uses files below this box's directory."""
        text = re.sub(r"/nix/store/[^/\s]+/bin/", "", UNIT[name])
        return re.sub(r"(?<![\w./-])/(?=(run|nix|var)/)", f"{self.box}/", text)

    def night(self, following):
        """Returns the scripts' exit code and shutdown's arguments, if this system is built, or none."""
        self.assertEqual(UNIT["serviceConfig"]["Type"], "oneshot")
        (self.box / "var/lib" / UNIT["serviceConfig"]["StateDirectory"]).mkdir(parents=True, exist_ok=True)
        told = self.box / "shutdown"
        told.unlink(missing_ok=True)
        environment = {"BOX": str(self.box), "NEXT": following or "", "PATH": f"{self.box}/bin:{os.environ['PATH']}"}
        status = 0
        for name in ("script", "postStart"):
            status = status or subprocess.run(
                ["bash", "-e"], input=self.script(name), env=environment, stdout=subprocess.DEVNULL, text=True
            ).returncode
        return status, told.read_text() if told.exists() else ""

    def test_where_nothing_has_changed_it_goes_on(self):
        self.assertEqual(self.night("today"), (0, ""))

    def test_a_system_with_another_program_is_booted(self):
        self.system("tomorrow", kernel="6.18.1", program="2")
        self.assertEqual(self.night("tomorrow"), (0, "-r +1\n"))

    def test_a_system_with_another_kernel_is_booted(self):
        self.system("tomorrow", kernel="6.18.2", program="1")
        self.assertEqual(self.night("tomorrow"), (0, "-r +1\n"))

    def test_one_that_cannot_be_built_is_not(self):
        status, told = self.night(None)
        self.assertNotEqual(status, 0)
        self.assertEqual(told, "")

    def test_one_that_fell_back_is_not_booted_every_night(self):
        self.system("tomorrow", kernel="6.18.1", program="2")
        self.assertEqual(self.night("tomorrow"), (0, "-r +1\n"))
        self.assertEqual(self.night("tomorrow"), (0, ""))

    def test_it_is_built_for_the_next_boot_from_the_place_that_is_named(self):
        self.night("today")
        told = (self.box / "rebuild").read_text().splitlines()
        self.assertEqual(len(told), 1, told)
        words = told[0].split()
        self.assertEqual(words[0], "boot")
        self.assertEqual(words[words.index("--flake") + 1], UNIT["flake"])


unittest.main()
