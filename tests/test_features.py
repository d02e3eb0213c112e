#!/usr/bin/env python3
"""What tests/features.py refuses, and what it accepts."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).parent / "features.py"
WORKSPACE = '[workspace]\nmembers = ["one"]\n[workspace.dependencies]\nrustix = { version = "1", features = ["fs"] }\n'
ONE = """
[package]
name = "linerate-one"
[dependencies]
rustix = { workspace = true, features = ["net"] }
[dev-dependencies]
rustix = { workspace = true, features = ["time"] }
"""


class Features(unittest.TestCase):
    def said(self, file: str, text: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            packages = Path(directory)
            (packages / "Cargo.toml").write_text(WORKSPACE)
            path = packages / "one" / file
            path.parent.mkdir(parents=True)
            (packages / "one/Cargo.toml").write_text(ONE)
            path.write_text(text)
            done = subprocess.run([sys.executable, PROGRAM, packages], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode != 0, bool(done.stderr), done)
            return done.stderr

    def test_what_a_crate_or_the_workspace_asks_for_is_there(self) -> None:
        for text in (
            "use rustix::fs::open;",
            "fn f() { rustix::net::socket() }",
            "use rustix::{fs::{Mode, open}, net, io};",
            "// rustix::stdio is not used",
            "use crate::rustix::stdio;",
        ):
            self.assertEqual(self.said("src/lib.rs", text), "", text)
        for file, text in (
            ("tests/all.rs", "use rustix::time::now;"),
            ("src/deep/tests.rs", "use rustix::time::now;"),
            ("src/lib.rs", "#[cfg(test)]\nmod tests {\n    use rustix::time::now;\n}\n"),
        ):
            self.assertEqual(self.said(file, text), "", file)

    def test_what_only_other_crates_or_tests_ask_for_is_not(self) -> None:
        for text, module in (
            ("fn f() { rustix::stdio::dup2_stdin() }", "stdio"),
            ("use rustix::{fs, stdio::{self}};", "stdio"),
            ("use rustix::{\n    fs::{Mode, open},\n    pipe::pipe,\n};", "pipe"),
            ("use rustix::time::now;", "time"),
        ):
            said = self.said("src/deep/er.rs", text)
            self.assertIn(f"src/deep/er.rs uses rustix::{module}, and one does not ask", said, text)


if __name__ == "__main__":
    unittest.main()
