#!/usr/bin/env python3
"""book.py check: every link in every document of the tree leads to a file, and to a heading if it names one; paths in
the tree that documents name exist; and every README is a page of the manual.
book.py build DIRECTORY: builds the manual as HTML in DIRECTORY, with mdbook.

The pages of the manual stay beside what they describe: docs/SUMMARY.md names them by their paths from docs/. A build
copies them to the same places below a separate directory, so that links between them work. A link to a file that isn't
a page, such as a source, becomes its path.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / "docs/SUMMARY.md"
# `[text](target)` and `![text](target)`; the text may contain one pair of brackets.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
# Pictures that a page shows.
PICTURES = {".svg", ".png"}
# READMEs that aren't pages of the manual, and why.
NO_PAGES = {"pkgs/console/assets/vendor/README.md": "says from where files of others are"}


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Returns the lines that aren't code, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip().startswith(fence):
            fence = ""
        elif not fence:
            yield number, line


def outside_code(line: str) -> str:
    return re.sub(r"(`+)(?:(?!\1).)+\1", lambda code: " " * len(code[0]), line)


def without_code(text: str) -> str:
    """Returns the same lines, with those of code empty. What is within backticks goes too, unless it is the text of a
    link."""
    lines = [" " * len(line) for line in text.splitlines()]
    for number, line in prose(text):
        lines[number - 1] = outside_code(line)
    return "\n".join(lines)


def headings(text: str) -> set[str]:
    """Returns a page's anchors, as GitHub and mdbook name them."""
    found: set[str] = set()
    for _, line in prose(text):
        if heading := re.match(r"#{1,6} +(.*?) *#*$", line):
            name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("&lt;", "<").replace("&gt;", ">")
            slug = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
            again = 0
            while (unique := slug if again == 0 else f"{slug}-{again}") in found:
                again += 1
            found.add(unique)
    return found


def inside(target: str) -> bool:
    """Whether a link leads to something in this tree."""
    return not re.match(r"[a-z]+:", target)


def broken(documents: list[Path]) -> Iterator[str]:
    """Returns what is wrong with links."""
    for document in documents:
        text = without_code(document.read_text())
        for link in LINK.finditer(text):
            target = link[3]
            if not inside(target):
                continue
            path, _, anchor = unquote(target).partition("#")
            place = (document.parent / path).resolve() if path else document
            number = text.count("\n", 0, link.start()) + 1
            where = f"{document.relative_to(ROOT)}:{number}: {target}"
            if not place.is_relative_to(ROOT) or not place.exists():
                yield f"{where}: there is no such file"
            elif anchor and place.suffix == ".md" and anchor not in headings(place.read_text()):
                yield f"{where}: {place.relative_to(ROOT)} has no such heading"


def missing(documents: list[Path]) -> Iterator[str]:
    """Returns paths in the tree that documents name as code and that don't exist; NAME stands for any."""
    for document in documents:
        for number, line in prose(document.read_text()):
            for path in re.findall(r"`((?:pkgs|modules|hosts|tests|docs|templates|\.ci)/[\w./-]*)`", line):
                there = any((base / path).exists() for base in (ROOT, document.parent))
                if not there and "NAME" not in path and not path.startswith("pkgs/target"):
                    yield f"{document.relative_to(ROOT)}:{number}: {path} is not there"


def chapters() -> list[Path]:
    """Returns the pages of the manual."""
    listed = [(SUMMARY.parent / target).resolve() for _, _, target in LINK.findall(SUMMARY.read_text())]
    if twice := [str(path) for path in listed if listed.count(path) > 1]:
        sys.exit(f"error: docs/SUMMARY.md has twice: {', '.join(sorted(set(twice)))}")
    return listed


def left_out(documents: list[Path], pages: set[Path]) -> Iterator[str]:
    """Returns documents that belong to the manual and aren't in it: all of docs/, and every README."""
    for document in documents:
        name = str(document.relative_to(ROOT))
        if document == ROOT / "docs/SUMMARY.md" or document in pages:
            if name in NO_PAGES:
                yield f"{name}: docs/SUMMARY.md has it, and docs/book.py says that it is no page"
        elif document.is_relative_to(ROOT / "docs") or (document.name == "README.md" and name not in NO_PAGES):
            yield f"{name}: docs/SUMMARY.md does not have it"
    for name in sorted(NO_PAGES.keys() - {str(document.relative_to(ROOT)) for document in documents}):
        yield f"{name}: docs/book.py says that it is no page, and it is not there"


def check() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    documents = [ROOT / name for name in tracked if (ROOT / name).exists()]
    pages = set(chapters())
    wrong = [*broken(documents), *missing(documents), *left_out(documents, pages)]
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"docs: the links of {len(documents)} documents lead somewhere; {len(pages)} of them are the manual")


def as_page(path: Path) -> Path:
    """Returns where a page is copied to: what a directory shows first is its index."""
    place = path.relative_to(ROOT)
    return place.with_name("index.md") if place.name == "README.md" else place


def gathered(document: Path, pages: set[Path], pictures: set[Path]) -> str:
    """Returns a page with its links as in the book."""
    here = as_page(document).parent

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not inside(target) or not path:
            return match[0]
        place = (document.parent / unquote(path)).resolve()
        if place.suffix in PICTURES:
            pictures.add(place)
            return match[0]
        if place.is_dir() and place / "README.md" in pages:
            place /= "README.md"
        if place not in pages:
            named = f"`{place.relative_to(ROOT)}`"
            return text if text.strip("`/") in named else f"{text} ({named})"
        relative = os.path.relpath(as_page(place), here)
        return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"

    text = document.read_text()
    blank = without_code(text)
    parts, end = [], 0
    for match in LINK.finditer(blank):
        # As written: code in the text of a link is part of it.
        written = LINK.match(text, match.start())
        if written is not None and written.end() == match.end():
            parts += [text[end : match.start()], link(written)]
            end = match.end()
    return "".join([*parts, text[end:]])


class Links(HTMLParser):
    """A page's links, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if (tag, name) in (("a", "href"), ("img", "src")) and value and inside(value):
                self.targets.append(value)


def build(output: Path) -> None:
    pages = chapters()
    pictures: set[Path] = set()
    with tempfile.TemporaryDirectory() as directory:
        staged = Path(directory)
        for page in pages:
            place = staged / "pages" / as_page(page)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(gathered(page, set(pages), pictures))
        for picture in pictures:
            place = staged / "pages" / picture.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, place)
        summary = LINK.sub(
            lambda one: f"[{one[2]}]({as_page((SUMMARY.parent / one[3]).resolve())})", SUMMARY.read_text()
        )
        (staged / "pages/SUMMARY.md").write_text(summary)
        shutil.copyfile(ROOT / "docs/book.toml", staged / "book.toml")
        shutil.rmtree(output, ignore_errors=True)
        subprocess.run(["mdbook", "build", staged, "--dest-dir", output.resolve()], check=True)
    # mdbook doesn't check links.
    found = {path.resolve(): Links(path.read_text()) for path in output.rglob("*.html")}
    for path, links in found.items():
        # The page with all pages, for printing, and the error page, which is served from anywhere.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for target in links.targets:
            name, _, anchor = unquote(target).partition("#")
            place = (path.parent / name).resolve() if name else path
            if place.is_dir():
                place /= "index.html"
            if not place.exists() or (anchor and place in found and anchor not in found[place].anchors):
                sys.exit(f"error: {path.relative_to(output.resolve())} leads to {target}, which is not there")
    print(f"docs: the manual has {len(pages)} pages: {output}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            check()
        case ["build", directory]:
            build(Path(directory))
        case _:
            sys.exit("usage: book.py check | build DIRECTORY")
