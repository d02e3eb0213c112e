#!/usr/bin/env python3
"""What tests/structure.py refuses, and what it accepts."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).parent / "structure.py"
WORKSPACE = """
[workspace]
members = ["one", "two"]
[workspace.dependencies]
two = { path = "two", package = "linerate-two" }
elsewhere = "1"
"""
ONE = """
[dependencies]
two.workspace = true
elsewhere.workspace = true
"""
README = "| [`one`](one) | first | `two` | |\n| `two` | second | | |\n"
# Two modules that use one another.
CYCLE = {
    "lib.rs": "mod a; mod b;",
    "a.rs": "use crate::b::B; pub struct A;",
    "b.rs": "use super::a; pub struct B(a::A);",
}


class Structure(unittest.TestCase):
    def check(
        self, files: dict[str, str], readme: str = README, one: str = ONE, two: str = ""
    ) -> tuple[int, str]:
        """Checks a tree in which the crate `one` has these files in `src`; returns its status and output."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            written = {
                "pkgs/README.md": readme,
                "pkgs/Cargo.toml": WORKSPACE,
                "pkgs/one/Cargo.toml": one,
                "pkgs/two/Cargo.toml": two,
                "pkgs/two/src/lib.rs": "",
                **{f"pkgs/one/src/{name}": text for name, text in files.items()},
            }
            for name, text in written.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            done = subprocess.run([sys.executable, "-B", PROGRAM, root], capture_output=True, text=True)
            return done.returncode, done.stderr

    def test_what_goes_in_a_circle_is_refused(self) -> None:
        cases: dict[str, tuple[str, dict[str, str]]] = {
            "siblings": ("one: a b", CYCLE),
            "siblings in a folder": (
                "one/f: a b",
                {
                    "lib.rs": "mod f;",
                    "f/mod.rs": "mod a; mod b;",
                    "f/a.rs": "fn a() { super::b::b() }",
                    "f/b.rs": "pub fn b() { crate::f::a::a() }",
                },
            ),
            "a folder beside its file": (
                "one/f: a b",
                {
                    "lib.rs": "mod f;",
                    "f.rs": "mod a; mod b;",
                    "f/a.rs": "use super::b::b; pub fn a() {}",
                    "f/b.rs": "use super::a::a; pub fn b() {}",
                },
            ),
            "three of them": (
                "one: a b c",
                {
                    "lib.rs": "mod a; mod b; mod c;",
                    "a.rs": "use crate::b::b; pub fn a() {}",
                    "b.rs": "use crate::c::{self, c as d}; pub fn b() {}",
                    "c.rs": "pub fn c() { crate::a::a() }",
                }

            ),
            "two folders, by different files": (
                "one: f g",
                {
                    "lib.rs": "mod f; mod g;",
                    "f/mod.rs": "pub mod a; mod b;",
                    "f/a.rs": "pub struct A;",
                    "f/b.rs": "use crate::g::c::C;",
                    "g/mod.rs": "pub mod c; mod d;",
                    "g/c.rs": "pub struct C;",
                    "g/d.rs": "use crate::f::a::A;",
                },
            ),
            "a sibling by the parent's name for it": (
                "one: a b",
                {
                    "lib.rs": "mod a; mod b; pub use a::A; pub use b::B;",
                    "a.rs": "pub struct A(crate::B);",
                    "b.rs": "use super::A; pub struct B;",
                },
            ),
            "a sibling by a glob of the parent": (
                "one: a b",
                {
                    "lib.rs": "mod a; mod b; pub use a::*;",
                    "a.rs": "pub struct A(crate::b::B);",
                    "b.rs": "pub struct B(crate::A);",
                },
            ),
            "by a module inside of a file": (
                "one: a b",
                CYCLE
                | {
                    "b.rs": "pub mod inner { pub struct B(crate::a::A); }",
                    "a.rs": "use crate::b::inner::B; pub struct A;",
                },
            ),
            "by an attribute": (
                "one: a b",
                CYCLE | {"b.rs": '#[error("{}", crate::a::A)] pub struct B;'},
            ),
            "where tests are something else's": (
                "one: a b",
                CYCLE | {"b.rs": "#[cfg(not(test))] use crate::a::A; #[cfg(test)] fn t() {} pub struct B;"},
            ),
            "behind what only looks like a comment": (
                "one: a b",
                CYCLE | {"b.rs": "const T: &str = \"/*\"; const C: char = '\"'; use crate::a::A; pub struct B; // */"},
            ),
        }
        for name, (line, files) in cases.items():
            with self.subTest(name):
                status, said = self.check(files)
                folder, members = line.split(": ")
                self.assertEqual(status, 1, said)
                self.assertIn(f"error: a cycle of modules in {folder}: {members}\n", said)
                # And where.
                self.assertIn(" uses ", said)

    def test_what_goes_in_no_circle_is_taken(self) -> None:
        cases: dict[str, dict[str, str]] = {
            "one way": {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B;", "b.rs": "pub struct B;"},
            "a parent that declares and re-exports": {
                "lib.rs": "mod a; mod b; pub use a::A; pub use b::B;",
                "a.rs": "pub struct A(crate::B);",
                "b.rs": "pub struct B;",
            },
            "a module and its insides": {
                "lib.rs": "mod f;",
                "f/mod.rs": "mod a; pub struct Error; fn f() { a::a() }",
                "f/a.rs": "use super::Error; pub fn a() -> Error { Error }",
            },
            "in tests": CYCLE | {"b.rs": "pub struct B; #[cfg(test)] mod tests { use super::super::a::A; }"},
            "in a file of tests": CYCLE
            | {"b.rs": "pub struct B; #[cfg(test)] mod tests;", "b/tests.rs": "use crate::a::A;"},
            "in tests of one kind": CYCLE
            | {"b.rs": 'pub struct B; #[cfg(all(test, feature = "x"))] #[allow(unused)] mod tests { use crate::a::A; }'},
            "in a field for tests": CYCLE | {"b.rs": "pub struct B { #[cfg(test)] a: crate::a::A, b: u8 }"},
            "in comments and text": CYCLE
            | {
                "b.rs": "//! crate::a::A\n/* crate::a::A /* */ crate::a::A */ pub struct B;"
                " const T: &str = r#\"\"crate::a::A\"#;"
            },
            "in another crate of a module's name": CYCLE | {"b.rs": "use ::a::A; use a::A as C; pub struct B;"},
            "a module that is named and not used": CYCLE | {"b.rs": "pub(in crate::a) struct B;"},
        }
        for name, files in cases.items():
            with self.subTest(name):
                self.assertEqual(self.check(files), (0, ""))

    def test_a_folder_has_a_dozen_files_or_a_reason(self) -> None:
        def folder(count: int, *, own: str = "mod.rs", reason: str = "", extra: str = "tests.rs") -> dict[str, str]:
            files = {f"f/n{number}.rs": "" for number in range(count)}
            path = f"f/{own}" if own == "mod.rs" else own
            return {"lib.rs": "mod f;", path: f"//! F.\n{reason}\n", f"f/{extra}": "", **files}

        said = "// More than a dozen files: one a rule."
        taken = {
            "a dozen": folder(12),
            "more with a reason": folder(13, reason=said),
            "more with a reason beside the folder": folder(13, own="f.rs", reason=said),
            "files of two folders": folder(12) | {f"g/n{number}.rs": "" for number in range(12)},
        }
        for name, files in taken.items():
            with self.subTest(name):
                self.assertEqual(self.check(files), (0, ""))
        refused = {
            "more": ("one/src/f has 13 files", folder(13)),
            "more than that with one of another kind": ("one/src/f has 13 files", folder(12, extra="test.rs")),
            "an empty reason": ("one/src/f has 13 files", folder(13, reason="// More than a dozen files: ")),
            "at the root": ("one/src has 13 files", {f"n{number}.rs": "" for number in range(13)} | {"lib.rs": ""}),
            "a reason for nothing": ("one/src/f says why", folder(12, reason=said)),
        }
        for name, (line, files) in refused.items():
            with self.subTest(name):
                status, text = self.check(files)
                self.assertEqual(status, 1, text)
                self.assertIn(f"error: {line}", text)

    def test_crates_use_one_another_as_the_table_says(self) -> None:
        apart = {"lib.rs": ""}
        alone = README.replace("`two` | |", "| |", 1)
        path = "[dev-dependencies]\none = { path = '../one' }"
        cases = {
            "one uses two, which pkgs/README.md does not allow": {"readme": alone},
            "pkgs/README.md lets one use two, which it does not": {"one": ""},
            "two uses one in its tests, which pkgs/README.md does not allow": {"two": path},
            "pkgs/README.md has no row for the crate two": {"readme": README.splitlines()[0]},
            "pkgs/README.md has a crate three, which is no member of": {"readme": README + "| `three` | | | |\n"},
        }
        for says, changed in cases.items():
            with self.subTest(says):
                status, said = self.check(apart, **changed)
                self.assertEqual(status, 1)
                self.assertIn(says, said)
        self.assertEqual(self.check(apart), (0, ""))


unittest.main()
