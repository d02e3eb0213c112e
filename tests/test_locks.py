#!/usr/bin/env python3
"""What tests/locks.py refuses, and what it accepts."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).parent / "locks.py"
WORKSPACE = '[workspace]\nmembers = ["one"]\n[workspace.dependencies]\nshared = "1.4"\n'
ONE = """
[package]
name = "linerate-one"
[dependencies]
shared.workspace = true
plain = { version = "0.3.1", package = "plain-rs" }
at-will = { version = "2", optional = true }
[dev-dependencies]
tests-alone = "1"
"""
FUZZ = '[package]\nname = "one-fuzz"\n[dependencies]\none = { path = "..", package = "linerate-one" }\nfuzzer = "0.4"\n'
LOCK = """
[[package]]
name = "fuzzer"
version = "0.4.13"
source = "registry"
[[package]]
name = "linerate-one"
version = "0.1.0"
dependencies = ["plain-rs", "shared 1.5.0"]
[[package]]
name = "one-fuzz"
version = "0.0.0"
dependencies = ["fuzzer", "linerate-one"]
[[package]]
name = "plain-rs"
version = "0.3.4"
source = "registry"
[[package]]
name = "shared"
version = "0.9.0"
source = "registry"
[[package]]
name = "shared"
version = "1.5.0"
source = "registry"
"""


class Locks(unittest.TestCase):
    def check(self, one: str = ONE, fuzz: str = FUZZ, workspace: str = WORKSPACE) -> tuple[int, str]:
        """Checks a tree with a crate and its fuzz targets; returns the status and the output."""
        with tempfile.TemporaryDirectory() as directory:
            packages = Path(directory) / "pkgs"
            (packages / "one/fuzz").mkdir(parents=True)
            (packages / "Cargo.toml").write_text(workspace)
            (packages / "one/Cargo.toml").write_text(one)
            (packages / "one/fuzz/Cargo.toml").write_text(fuzz)
            (packages / "one/fuzz/Cargo.lock").write_text(LOCK)
            done = subprocess.run([sys.executable, "-B", PROGRAM, directory], capture_output=True, text=True)
            return done.returncode, done.stderr

    def test_what_fits_is_taken(self) -> None:
        self.assertEqual(self.check(), (0, ""))

    def test_what_is_behind_is_refused(self) -> None:
        cases = {
            "linerate-one needs more, which is missing": self.check(one=ONE.replace("[dev-", 'more = "1"\n[dev-')),
            "linerate-one does not need plain-rs any more": self.check(one=ONE.replace("plain =", "#")),
            "linerate-one needs at-will, which is missing": self.check(one=ONE.replace(", optional = true", "")),
            "linerate-one needs plain-rs 0.4, and it is 0.3.4": self.check(one=ONE.replace('"0.3.1"', '"0.4"')),
            "linerate-one needs plain-rs 0.3.5, and it is 0.3.4": self.check(one=ONE.replace('"0.3.1"', '"0.3.5"')),
            "linerate-one needs shared 2, and it is 1.5.0": self.check(workspace=WORKSPACE.replace('"1.4"', '"2"')),
            "one-fuzz needs fuzzer 0.5, and it is 0.4.13": self.check(fuzz=FUZZ.replace('"0.4"', '"0.5"')),
            "no crate is called linerate-one any more": self.check(one=ONE.replace("linerate-one", "linerate-two")),
        }
        for said, (status, errors) in cases.items():
            with self.subTest(said):
                self.assertEqual(status, 1)
                self.assertIn(said, errors)


if __name__ == "__main__":
    unittest.main()
