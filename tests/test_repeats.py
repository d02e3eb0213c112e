#!/usr/bin/env python3
"""What tests/repeats.py refuses, and what it accepts."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import repeats

TEN = [f"let a{n} = b{n}();" for n in range(10)]
PAIR = ("a.rs", "b.rs")


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


class Repeats(unittest.TestCase):
    def check(self, files: dict[str, str], reasons: dict[tuple[str, str], str] | None = None) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            subprocess.run(["git", "init", "--quiet", root], check=True)
            for name, content in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return repeats.check(root, reasons or {})

    def test_ten_lines_that_stand_twice_are_refused(self) -> None:
        spaced = [f"    {line}  // why" if n == 3 else f"    {line}" for n, line in enumerate(TEN)]
        apart = [line for one in TEN for line in ("", "// A remark.", one, "}")]
        cases = {
            "the same": ({"a.rs": text(TEN), "b.rs": text(["fn f() {", *TEN])}, "a.rs:1-10 stands again at b.rs:2-11"),
            "more": (
                {"a.rs": text([*TEN, "c();", "d();"]), "b.rs": text([*TEN, "c();", "e();"])},
                "a.rs:1-11 stands again at b.rs:1-11",
            ),
            "indented, and with remarks between": (
                {"a.rs": text(TEN), "b.rs": text(apart)},
                "a.rs:1-10 stands again at b.rs:3-39",
            ),
            "in one file": ({"a.rs": text([*TEN, "c();", *TEN])}, "a.rs:1-10 stands again at a.rs:12-21"),
            "in a script": ({"a.sh": text(TEN), "b.sh": text(TEN)}, "a.sh:1-10 stands again at b.sh:1-10"),
        }
        for name, (files, wrong) in cases.items():
            with self.subTest(name):
                self.assertEqual(self.check(files), [wrong])
        self.assertEqual(self.check({"a.rs": text(TEN), "b.rs": text(spaced)}), [], "a line that differs")

    def test_what_says_nothing_may_stand_anywhere(self) -> None:
        cases = {
            "nine lines": text(TEN[:9]),
            "imports": text([f"use a::b{n};" for n in range(20)]),
            "attributes and remarks": text([f"#[test]\n// {n}" for n in range(20)]),
            "brackets": text(["}", ")", "];"] * 10),
        }
        for name, content in cases.items():
            with self.subTest(name):
                self.assertEqual(self.check({"a.rs": content, "b.rs": content}), [])
        for other in ("b.md", "b.json", "pkgs/console/assets/vendor/b.js", "tests/rendered/b.nix"):
            with self.subTest(other):
                self.assertEqual(self.check({other: text(TEN), f"{other}{Path(other).suffix}": text(TEN)}), [])

    def test_a_reason_is_taken_as_long_as_it_is_needed(self) -> None:
        self.assertEqual(self.check({"a.rs": text(TEN), "b.rs": text(TEN)}, {PAIR: "because"}), [])
        unneeded = "a.rs and b.rs have nothing in common any more: tests/repeats.py need not say why"
        self.assertEqual(self.check({"a.rs": text(TEN), "b.rs": "c();"}, {PAIR: "because"}), [unneeded])


unittest.main()
