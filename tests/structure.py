#!/usr/bin/env python3
"""structure.py: modules have no cycles, folders aren't heaps, and crates use one another as pkgs/README.md says.

A module uses another if one of its paths (`use`, `crate::a::b`, `super::c`, `child::d`) ends at an item that the
other's file defines. Re-exports are followed to that file, and aren't uses themselves. Modules in the same folder, each
including what is below it, may not use one another in a cycle. A folder's own file and what is in the folder may: that
is a module and its insides. What is only compiled for tests doesn't count, and neither do method calls, which name no
path.

A folder of `src` has at most a dozen files at one level, beside its own (`mod.rs`, `lib.rs`, `main.rs`) and those of
tests, unless its own says why in a line that starts with REASON.

Without an argument it checks this tree; tests/test_structure.py gives it others.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Comments, then strings, then characters (`'a'`, and not the lifetime `'a`), then words, `::`, and whatever is left.
TOKEN = re.compile(
    r"""
    (?P<space>\s+ | //[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>[bc]?r(?P<hashes>\#*)")
  | (?P<string>[bc]?"(?:[^"\\]|\\.)*")
  | (?P<char>b?'(?:[^'\\]|\\(?:u\{[^}]*\}|x..|.))')
  | (?P<lifetime>'\w+)
  | (?P<word>(?:r\#)?[A-Za-z_]\w*)
  | (?P<number>\d\w*(?:\.\d\w*)?)
  | (?P<colons>::)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
WORD = re.compile(r"[A-Za-z_]\w*$")
DOZEN = 12
REASON = "// More than a dozen files: "
OWN = ("lib.rs", "main.rs", "mod.rs")
DEFINES = {"fn", "struct", "enum", "trait", "type", "const", "static", "union"}
OPENS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """Returns what the compiler reads: no comments, and no text of strings and characters."""
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None
        end = match.end()
        kind = match.lastgroup
        if match["block"]:
            depth = 1
            while depth and (next_mark := re.compile(r"/\*|\*/").search(text, end)):
                depth += 1 if next_mark[0] == "/*" else -1
                end = next_mark.end()
        elif match["raw"]:
            end = text.index('"' + match["hashes"], end) + 1 + len(match["hashes"])
            found.append(Token('""', line))
        elif match["string"] or match["char"] or match["lifetime"] or match["number"]:
            found.append(Token('""', line))
        elif kind != "space":
            found.append(Token(match[0].removeprefix("r#"), line))
        line += text.count("\n", at, end)
        at = end
    return found


def closing(code: list[Token], at: int) -> int:
    """Returns the index after the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(code)):
        if code[index].text in OPENS:
            depth += 1
        elif code[index].text in OPENS.values():
            depth -= 1
            if depth == 0:
                return index + 1
    return len(code)


def item_end(code: list[Token], at: int) -> int:
    """Returns the index after the item, field, arm or statement that starts at `at`."""
    ends_with_braces = True
    comma_ends = True
    for index in range(at, min(at + 8, len(code))):
        word = code[index].text
        if word in {"use", "const", "static", "type", "let"} and code[index + 1].text != "fn":
            ends_with_braces = comma_ends = False
        if word in {"mod", "fn", "struct", "enum", "trait", "impl", "union", "macro_rules", "unsafe", "extern"}:
            comma_ends = False
        if word in {"{", "(", ";", "=", ":"} and code[index - 1].text != "pub":
            break
    index = at
    while index < len(code):
        text = code[index].text
        if text == ";" or (text == "," and comma_ends):
            return index + 1
        if text in OPENS.values():
            return index
        if text in OPENS:
            index = closing(code, index)
            if text == "{" and ends_with_braces:
                return index + (index < len(code) and comma_ends and code[index].text == ",")
        else:
            index += 1
    return index


def tests_alone(attribute: list[str]) -> bool:
    """Whether something with this attribute is only compiled for tests."""
    if attribute in (["test"], ["cfg", "(", "test", ")"]):
        return True
    depth = 0
    for one in attribute if attribute[:3] == ["cfg", "(", "all"] else []:
        depth += (one == "(") - (one == ")")
        if one == "test" and depth == 2:
            return True
    return False


def without_tests(code: list[Token]) -> list[Token] | None:
    """Returns the part of a file that is in a program; None if all of it is for tests."""
    kept: list[Token] = []
    index = 0
    while index < len(code):
        inner = index + 1 < len(code) and code[index + 1].text == "!"
        start = index + 1 + inner
        if code[index].text != "#" or start >= len(code) or code[start].text != "[":
            kept.append(code[index])
            index += 1
            continue
        end = closing(code, start)
        if tests_alone([one.text for one in code[start + 1 : end - 1]]):
            if inner:
                return None
            # Other attributes of the same item come before the item.
            while end < len(code) and code[end].text == "#":
                end = closing(code, end + 1)
            end = item_end(code, end)
        else:
            # Attributes contain paths too: for errors' texts, for schemas.
            kept += code[index:end]
        index = end
    return kept


@dataclass
class Module:
    """A module, in its own file or inside another's."""

    file: Path
    parent: "Module | None"
    children: dict[str, "Module"] = field(default_factory=dict)
    defines: set[str] = field(default_factory=set)
    # Names that `use` introduces, and the path each stands for; globs are separate.
    bindings: dict[str, list[str]] = field(default_factory=dict)
    globs: list[list[str]] = field(default_factory=list)
    # Every path and its line. A `pub use` only counts as a use if its name appears elsewhere too.
    paths: list[tuple[list[str], int]] = field(default_factory=list)
    passed_on: list[tuple[list[str], str | None, int]] = field(default_factory=list)
    words: set[str] = field(default_factory=set)

    def uses(self) -> Iterator[tuple[list[str], int]]:
        yield from self.paths
        yield from ((path, line) for path, name, line in self.passed_on if name in self.words)

    def root(self) -> "Module":
        return self if self.parent is None else self.parent.root()

    def all(self) -> Iterator["Module"]:
        yield self
        for child in self.children.values():
            yield from child.all()


def tree_of_use(code: list[Token], prefix: list[str]) -> Iterator[tuple[list[str], str | None, int]]:
    """Returns what follows `use`: path, name, line; the name is None for a glob."""
    path = list(prefix)
    at = line = 0
    if not prefix and code[0].text == "::":
        # Another crate, whatever modules are called.
        return
    while at < len(code):
        text, line = code[at].text, code[at].line
        if text == "::":
            at += 1
        elif text == "*":
            yield path, None, line
            return
        elif text == "{":
            begin, end = at + 1, closing(code, at) - 1
            while begin < end:
                stop = begin
                while stop < end and code[stop].text != ",":
                    stop = closing(code, stop) if code[stop].text == "{" else stop + 1
                yield from tree_of_use(code[begin:stop], path)
                begin = stop + 1
            return
        elif text == "as":
            yield path, code[at + 1].text, line
            return
        else:
            if not (text == "self" and path):
                path.append(text)
            at += 1
    if path:
        yield path, path[-1], line


def read(file: Path, directory: Path, parent: Module | None) -> Module | None:
    """Returns the module of a file and all below it; None if it is only for tests. Its children are in `directory`."""
    code = without_tests(tokens(file.read_text()))
    if code is None:
        return None
    module = Module(file, parent)
    fill(module, code, directory)
    return module


def fill(module: Module, code: list[Token], directory: Path) -> None:
    index = 0
    while index < len(code):
        text = code[index].text
        following = code[index + 1].text if index + 1 < len(code) else ""
        before = code[index - 1].text if index else ""
        if text == "mod" and WORD.match(following) and before != "::":
            below = directory / following
            if code[index + 2].text == "{":
                end = closing(code, index + 2)
                child = Module(module.file, module)
                module.children[following] = child
                fill(child, code[index + 3 : end - 1], below)
                index = end
                continue
            flat = directory / f"{following}.rs"
            read_child = read(flat if flat.exists() else below / "mod.rs", below, module)
            if read_child is not None:
                module.children[following] = read_child
            index += 3
        elif text == "use" and before != "::" and following != "<" and before != "+":
            end = index
            while end < len(code) and code[end].text != ";":
                end += 1
            public = before == "pub" or before == ")"
            for path, name, line in tree_of_use(code[index + 1 : end], []):
                if public:
                    module.passed_on.append((path, name, line))
                else:
                    module.paths.append((path, line))
                if name is None:
                    module.globs.append(path)
                elif name != "_":
                    module.bindings[name] = path
            index = end
        elif text in DEFINES and following not in DEFINES | {"unsafe", "extern", "async"} and WORD.match(following):
            # Names of methods are included, which no path through a module can name by mistake.
            module.defines.add(following)
            index += 2
        elif text == "macro_rules" and following == "!":
            module.defines.add(code[index + 2].text)
            index += 3
        elif WORD.match(text) and following == "::" and before != "::":
            path, line = [text], code[index].line
            module.words.add(text)
            while index + 2 < len(code) and code[index + 1].text == "::" and WORD.match(code[index + 2].text):
                path.append(code[index + 2].text)
                index += 2
            module.paths.append((path, line))
            index += 1
        else:
            module.words.add(text)
            index += 1


def defining_file(module: Module, path: list[str], seen: frozenset[tuple[int, str]] = frozenset()) -> Path | None:
    """Returns the file that defines what a path names, seen from a module; None for modules, and for what other crates
    have."""
    here = module
    rest = list(path)
    rooted = False
    while rest and rest[0] in ("crate", "self", "super", "$"):
        first = rest.pop(0)
        rooted = True
        if first == "crate":
            here = module.root()
        elif first == "super":
            if here.parent is None:
                return None
            here = here.parent
    while rest:
        name = rest[0]
        key = (id(here), name)
        if name in here.children:
            here = here.children[name]
            rest.pop(0)
            rooted = True
        elif name in here.bindings and key not in seen and here.bindings[name] != path:
            return defining_file(here, here.bindings[name] + rest[1:], seen | {key})
        elif name in here.defines:
            return here.file
        else:
            for glob in here.globs:
                key = (id(here), "*" + name)
                if key not in seen and (file := defining_file(here, [*glob, name], seen | {key})):
                    return file
            # The path ends at what a macro makes.
            return here.file if rooted and here.file != module.root().file else None
    return None


@dataclass(frozen=True)
class Use:
    """Where a module first uses another."""

    file: Path
    line: int
    path: str


Toml = dict[str, Any]
# By the path of a folder from the crate's `src`: which of its modules uses which.
Graph = dict[str, dict[str, Use]]
Folders = dict[tuple[str, ...], Graph]


def place(file: Path, source: Path) -> tuple[str, ...]:
    """Returns the module that a file is, from the crate's root."""
    own = file.parent if file.name in OWN else file.with_suffix("")
    return own.relative_to(source).parts


def folders_of(source: Path) -> Folders:
    """Returns the uses in the folders of a crate's `src`."""
    folders: Folders = {}
    for root in (source / "lib.rs", source / "main.rs"):
        module = read(root, source, None) if root.exists() else None
        for one in module.all() if module else ():
            here = place(one.file, source)
            for path, line in one.uses():
                file = defining_file(one, path)
                if file is None or file == one.file:
                    continue
                there = place(file, source)
                common = 0
                while common < min(len(here), len(there)) and here[common] == there[common]:
                    common += 1
                # A module and its insides.
                if common in (len(here), len(there)):
                    continue
                graph = folders.setdefault(here[:common], {})
                graph.setdefault(there[common], {})
                graph.setdefault(here[common], {}).setdefault(there[common], Use(one.file, line, "::".join(path)))
    return folders


def reached(graph: Graph, start: str) -> dict[str, str]:
    """Returns everything that `start` reaches, each with the node from which it is reached first."""
    came: dict[str, str] = {}
    queue = [start]
    for one in queue:
        for other in graph[one]:
            if other not in came:
                came[other] = one
                queue.append(other)
    return came


def circles(graph: Graph) -> list[list[str]]:
    """Returns modules that reach one another, two or more, each group in one list."""
    reach = {one: set(reached(graph, one)) for one in graph}
    found: list[list[str]] = []
    for one in sorted(graph):
        circle = sorted({one} | {other for other in reach[one] if one in reach[other]})
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def shortest(graph: Graph, circle: list[str]) -> list[str]:
    """Returns the shortest cycle; it ends where it starts."""
    ways = []
    for one in circle:
        came = reached(graph, one)
        way = [one]
        while len(way) == 1 or way[0] != one:
            way.insert(0, came[way[0]])
        ways.append(way)
    return min(ways, key=len)


def check_cycles(packages: Path) -> Iterator[str]:
    """Returns what is wrong with the modules of all crates."""
    for source in sorted(packages.glob("*/src")):
        for folder, graph in sorted(folders_of(source).items()):
            for circle in circles(graph):
                steps = "".join(
                    f"\n  {one} uses {other}: {use.file.relative_to(packages)}:{use.line}: {use.path}"
                    for one, other in pairwise(shortest(graph, circle))
                    for use in (graph[one][other],)
                )
                yield f"a cycle of modules in {'/'.join((source.parent.name, *folder))}: {' '.join(circle)}{steps}"


def check_folders(packages: Path) -> Iterator[str]:
    """Returns the folders that have too many files at one level to read through, and don't say why."""
    for source in sorted(packages.glob("*/src")):
        for folder in (source, *sorted(one for one in source.rglob("*") if one.is_dir())):
            files = {one.name for one in folder.glob("*.rs")} - {*OWN, "tests.rs"}
            own = next((folder / name for name in OWN if (folder / name).exists()), folder.with_suffix(".rs"))
            text = own.read_text() if own.exists() else ""
            says = any(line.startswith(REASON) and line != REASON for line in text.splitlines())
            name = folder.relative_to(packages)
            if len(files) > DOZEN and not says:
                yield f"{name} has {len(files)} files at one level: put them into folders, or say why in {own.name}: '{REASON}…'"
            if len(files) <= DOZEN and says:
                yield f"{name} says why it has more than a dozen files, and has {len(files)}"


def ours(manifest: Toml, shared: dict[str, str], *sections: str) -> set[str]:
    """Returns this tree's crates among the dependencies in a manifest; `shared` has the workspace's by name."""
    found: set[str] = set()
    for section in sections:
        for name, entry in manifest.get(section, {}).items():
            if isinstance(entry, dict) and "path" in entry:
                found.add(Path(entry["path"]).name)
            elif isinstance(entry, dict) and entry.get("workspace") and name in shared:
                found.add(shared[name])
    return found


def check_crates(packages: Path, readme: str) -> Iterator[str]:
    """Returns what is wrong with the crates' dependencies on one another, given the table of those that are allowed."""
    workspace = tomllib.loads((packages / "Cargo.toml").read_text())["workspace"]
    shared = {
        name: entry["path"]
        for name, entry in workspace.get("dependencies", {}).items()
        if isinstance(entry, dict) and "path" in entry
    }
    allowed: dict[str, tuple[set[str], set[str]]] = {}
    for line in readme.splitlines():
        if row := re.match(r"\| \[?`([\w-]+)`", line):
            programs, tests = (set(re.findall(r"`([\w-]+)`", cell)) for cell in line.split("|")[-3:-1])
            allowed[row[1]] = (programs, tests)

    for crate in sorted(set(allowed) - set(workspace["members"])):
        yield f"pkgs/README.md has a crate {crate}, which is no member of pkgs/Cargo.toml"
    for crate in sorted(workspace["members"]):
        if crate not in allowed:
            yield f"pkgs/README.md has no row for the crate {crate}"
            continue
        manifest = tomllib.loads((packages / crate / "Cargo.toml").read_text())
        programs = ours(manifest, shared, "dependencies", "build-dependencies")
        tests = ours(manifest, shared, "dev-dependencies") - programs
        for what, uses, may in (("", programs, allowed[crate][0]), (" in its tests", tests, allowed[crate][1])):
            for other in sorted(uses - may):
                yield f"{crate} uses {other}{what}, which pkgs/README.md does not allow"
            for other in sorted(may - uses):
                yield f"pkgs/README.md lets {crate} use {other}{what}, which it does not"


def check(root: Path) -> list[str]:
    packages = root / "pkgs"
    return [*check_cycles(packages), *check_folders(packages), *check_crates(packages, (packages / "README.md").read_text())]


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    wrong = check(root)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    crates = len(list((root / "pkgs").glob("*/src")))
    print(f"check-structure: {crates} crates use one another as pkgs/README.md says, and no modules go in a circle")


if __name__ == "__main__":
    main()
