#!/usr/bin/env python3
"""What docs/book.py and docs/commands.py refuse."""

import tempfile
import unittest
from pathlib import Path

import book
import commands


class Documents(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        root, self.root = book.ROOT, Path(self.directory.name).resolve()
        self.addCleanup(setattr, book, "ROOT", root)
        book.ROOT = self.root

    def page(self, text: str, name: str = "page.md") -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    def test_links_that_lead_nowhere_are_refused(self) -> None:
        self.page("# Of `code`, and [a link](page.md)\n\n## Twice\n\n## Twice\n", "other.md")
        cases = {
            "[a](other.md)": None,
            "[a](other.md#of-code-and-a-link) ![b](other.md)": None,
            "[a](other.md#twice-1)": None,
            "[a](https://example.com/none) `[b](none.md)`": None,
            "```\n[a](none.md)\n```": None,
            "# Here\n[a](#here)": None,
            "[a](none.md)": "page.md:1: none.md: there is no such file",
            "\n[a\nb](none.md)": "page.md:2: none.md: there is no such file",
            "\n\n[`a`](none.md)": "page.md:3: none.md: there is no such file",
            "[a](../outside.md)": "page.md:1: ../outside.md: there is no such file",
            "[a](other.md#twice-2)": "page.md:1: other.md#twice-2: other.md has no such heading",
            "[a](#there)": "page.md:1: #there: page.md has no such heading",
        }
        for text, wrong in cases.items():
            with self.subTest(text):
                self.assertEqual(list(book.broken([self.page(text)])), [wrong] if wrong else [])

    def test_paths_that_are_not_there_are_refused(self) -> None:
        (self.root / "pkgs").mkdir()
        (self.root / "pkgs/there.rs").write_text("")
        page = self.page("`pkgs/there.rs` `hosts/NAME/x.nix` `pkgs/target/x` `make pkgs/none.rs` `pkgs/none.rs`\n")
        self.assertEqual(list(book.missing([page])), ["page.md:1: pkgs/none.rs is not there"])

    def test_readmes_that_the_manual_does_not_have_are_refused(self) -> None:
        self.addCleanup(setattr, book, "NO_PAGES", book.NO_PAGES)
        names = ("README.md", "docs/SUMMARY.md", "docs/page.md", "pkgs/one/README.md", "pkgs/one/NOTES.md")
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        documents = {name: self.page("# One\n", name) for name in names}
        readme, page, one = (documents[name] for name in ("README.md", "docs/page.md", "pkgs/one/README.md"))
        lacks = "docs/SUMMARY.md does not have it"
        cases: list[tuple[set[Path], dict[str, str], list[str]]] = [
            ({readme, page, one}, {}, []),
            ({readme, page}, {"pkgs/one/README.md": "a reason"}, []),
            ({readme, page}, {}, [f"pkgs/one/README.md: {lacks}"]),
            ({readme, one}, {}, [f"docs/page.md: {lacks}"]),
            (
                {readme, page, one},
                {"pkgs/one/README.md": "a reason"},
                ["pkgs/one/README.md: docs/SUMMARY.md has it, and docs/book.py says that it is no page"],
            ),
            (
                {readme, page, one},
                {"pkgs/two/README.md": "a reason"},
                ["pkgs/two/README.md: docs/book.py says that it is no page, and it is not there"],
            ),
        ]
        for pages, book.NO_PAGES, wrong in cases:
            with self.subTest(wrong):
                self.assertEqual(list(book.left_out(list(documents.values()), pages)), wrong)

    def test_links_of_the_book_are_those_of_its_pages(self) -> None:
        self.page("# Other\n", "README.md")
        page = self.page("[a](README.md#other), [b](none.rs), [`none.rs`](none.rs), `[x](y)`, [c](#d), ![e](e.svg)\n")
        pictures: set[Path] = set()
        text = book.gathered(page, {page, self.root / "README.md"}, pictures)
        self.assertEqual(text, "[a](index.md#other), b (`none.rs`), `none.rs`, `[x](y)`, [c](#d), ![e](e.svg)\n")
        self.assertEqual(pictures, {self.root / "e.svg"})

    def test_commands_print_what_documents_show(self) -> None:
        cases = {
            "$ printf 'a b c\\n'\na … c": None,
            "$ printf '1\\n2\\n3\\n'\n…\n3": None,
            "$ echo a \\\n    b  # says so\na b": None,
            "$ echo anything": None,
            "$ false; echo no; false\nno": None,
            "$ echo a > file\n$ cat file\na": None,
            "$ sleep 60 &\n$ echo a\na": None,
            "$ echo a\nb": "it printed:\na\n",
            "$ printf 'a\\nb\\n'\na": "it printed:\na\nb\n",
            "$ false": "it ended with 1",
        }
        for text, wrong in cases.items():
            with self.subTest(text):
                page = self.page(f"```console\n$ false\n```\n\n```console run\n{text}\n```\n")
                if wrong is None:
                    commands.ran(self.root, page)
                    continue
                with self.assertRaises(SystemExit) as ended:
                    commands.ran(self.root, page)
                self.assertIn(wrong, str(ended.exception.code))
        with self.assertRaises(SystemExit):
            commands.ran(self.root, self.page("```console\n$ true\n```\n"))

    def test_a_recording_that_shows_something_else_is_refused(self) -> None:
        shown = "```console run\n$ echo a b\na …\n```\n"
        page = self.page(shown)
        self.assertFalse(commands.stale(page), "there is none")
        (self.root / "docs").mkdir()
        commands.picture_of(page).write_text(commands.recording(page, commands.ran(self.root, page)))
        self.assertFalse(commands.stale(page))
        self.page(f"Other words.\n{shown}")
        self.assertFalse(commands.stale(page))
        for text in (shown.replace("a …", "a b"), shown.replace("echo a", "echo  a"), f"{shown}\n{shown}"):
            with self.subTest(text):
                self.assertTrue(commands.stale(self.page(text)))


unittest.main()
