#!/usr/bin/env python3
"""What tests/rendered.py refuses."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).parent / "rendered.py"
HOST = {
    "assertions": [],
    "warnings": [],
    "release": "24.11",
    "system": "/nix/store/x.drv",
    "build": 'if [[ -perl != "" ]]; then exit 1; fi',
    "files": {
        "settings/links": "{}",
        "systemd/system/linerate-links.service": "[Service]",
        "scripts/linerate-health": "exit 0",
    },
}


def run(arguments, read, **environment):
    return subprocess.run(
        [sys.executable, "-B", PROGRAM, *arguments],
        input=json.dumps(read),
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


class Check(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.run_with("write", HOST)

    def run_with(self, mode, host):
        skips = pathlib.Path(self.directory.name) / "skips"
        done = run([mode, f"{self.directory.name}/hosts"], {"box": host}, LINERATE_SKIPS=str(skips))
        return done.returncode, done.stderr, skips.read_text() if skips.exists() else ""

    def test_what_is_kept_is_taken(self):
        self.assertEqual(self.run_with("check", HOST), (0, "", ""))

    def test_each_is_refused(self):
        files = HOST["files"]
        cases = {
            "assertion failed: no": {"assertions": ["no"]},
            "warning: old": {"warnings": ["old"]},
            # bash prints so, and exits with 0.
            "the script that builds it is no script": {"build": 'if [[ -(a|b)-[0-9]$ != "" ]]; then exit 1; fi'},
            "scripts/linerate-health is no script": {"files": files | {"scripts/linerate-health": "if true"}},
            "settings/links is not": {"files": files | {"settings/links": '{"workers": 1}'}},
            "linerate-links.service is not": {"files": files | {"systemd/system/linerate-links.service": "[Unit]"}},
            "settings/files is not": {"files": files | {"settings/files": "{}"}},
        }
        for says, changed in cases.items():
            with self.subTest(says):
                status, said, _ = self.run_with("check", HOST | changed)
                self.assertEqual(status, 1)
                self.assertIn(says, said)

    def test_another_release_is_compared_where_its_words_are_ours(self):
        files = HOST["files"]
        other = HOST | {"release": "26.05", "files": files | {"systemd/system/linerate-links.service": "[Unit]"}}
        status, said, skips = self.run_with("check", other)
        self.assertEqual((status, said), (0, ""))
        self.assertIn("skipped: 2 rendered files of box: they are of NixOS 24.11, and this is 26.05", skips)
        status, said, _ = self.run_with("check", other | {"files": files | {"settings/links": '{"workers": 1}'}})
        self.assertEqual(status, 1)
        self.assertIn("settings/links is not", said)


class Scripts(unittest.TestCase):
    def test_one_that_bash_cannot_read_is_refused_by_its_name(self):
        done = run(["scripts"], {"one": HOST["build"], "another": 'if [[ -(a|b)-[0-9]$ != "" ]]; then exit 1; fi'})
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith("error: another is no script: "), done.stderr)
        self.assertNotIn("one is", done.stderr)

    def test_those_that_it_can_are_taken(self):
        done = run(["scripts"], {"one": HOST["build"]})
        self.assertEqual((done.returncode, done.stderr), (0, ""))


unittest.main()
