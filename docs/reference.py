#!/usr/bin/env python3
"""reference.py check|write DIRECTORY: the generated pages of docs/reference, from the programs in DIRECTORY.

reference.py options check|write: docs/reference/options.md, from the modules' options as JSON on standard input, which
.ci/nix.sh evaluates.

The pages are stored, so that they can be read without building anything, and compared with what the programs print now.
The purpose of a setting, metric, rule or operation is written where it is defined.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands

KEPT = Path(__file__).parent / "reference"
PROGRAMS = ("linerate-links", "linerate-files", "linerate-api", "linerate")
ANSWER_SECONDS = 30
NOTE = "<!-- Written by docs/reference.py: change what it is made from, then 'make docs ARGS=write'. -->\n"
# Help is wrapped at this many columns, and the environment of whoever writes the pages doesn't affect them.
ENVIRONMENT = {"COLUMNS": "100", "LANG": "C.UTF-8", "PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout


def table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"

    return line(head) + "|" + "---|" * len(head) + "\n" + "".join(map(line, rows))


def command_lines(program: Path) -> str:
    """Returns every command of a program, as it prints it."""

    def sections(path: list[str]) -> Iterator[str]:
        text = said(program, *path, "--help").rstrip()
        yield f"## {' '.join([program.name, *path])}\n\n```text\n{re.sub(r' +$', '', text, flags=re.MULTILINE)}\n```\n"
        below = re.search(r"^Commands:\n((?: .*\n|\n)*)", text + "\n", re.MULTILINE)
        for name in re.findall(r"^ {2}([a-z]\S*)", below[1], re.MULTILINE) if below else []:
            if name != "help":
                yield from sections([*path, name])

    return f"# {program.name}\n\nEvery command and flag, as `--help` says it.\n\n" + "\n".join(sections([]))


def exit_codes(programs: Path) -> str:
    rows = []
    for name in PROGRAMS:
        footer = re.search(r"^Exit codes: ((?:.+\n)+)", said(programs / name, "--help") + "\n", re.MULTILINE)
        assert footer is not None, f"{name} --help says nothing of exit codes"
        rows.append([f"`{name}`", " ".join(footer[1].split())])
    return "# Exit codes\n\n" + table(["program", "ends with"], rows)


def rules(programs: Path) -> str:
    """Returns doctor's rules, in the columns of its own table."""
    # Its findings about this machine don't matter here.
    command = [str(programs / "linerate"), "doctor", "--explain"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    _, _, listed = done.stdout.partition("RULE  ")
    rows = [re.split(r" {2,}", line, maxsplit=2) for line in listed.splitlines()[1:] if line.strip()]
    assert len(rows) > 20 and all(len(row) == 3 for row in rows), done
    return (
        "# Rules of doctor\n\n`linerate doctor --explain` prints them; [what they cost and how they are mended]"
        "(../../pkgs/linerate/README.md#doctor) is in its findings.\n\n"
        + table(["rule", "looks whether", "source"], [[f"`{row[0]}`", row[1], row[2]] for row in rows])
    )


def operations(name: str, description: dict[str, Any]) -> str:
    """Returns an OpenAPI description for people."""
    rows, seen = [], []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            scopes = [scope for one in operation.get("security") or [] for of in one.values() for scope in of]
            codes = " ".join(sorted(operation.get("responses", {})))
            summary = operation.get("summary", "")
            rows.append([f"`{method.upper()} {path}`", summary, ", ".join(scopes) or "none", codes])
            text = operation.get("description", "")
            parameters = [
                [
                    f"`{one['name']}`" + (" (required)" if one.get("required") else ""),
                    one["in"],
                    one.get("description", "") or "",
                ]
                for one in operation.get("parameters", [])
            ]
            if text or parameters:
                seen.append(f"## {method.upper()} {path}\n\n{summary.rstrip('.')}. {text}\n")
                if parameters:
                    seen.append(table(["parameter", "in", "meaning"], parameters))
    return (
        f"# API of {name}\n\n{description['info']['description']} The running service has all of it, with schemas, at"
        " `/openapi.json`, and for people at `/`.\n\n"
        + table(["operation", "does", "scope", "answers"], rows)
        + "\n"
        + "\n".join(seen)
    )


def asked(url: str, service: subprocess.Popen[str]) -> str:
    """Returns the content of a service's URL, once there is something."""
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        if service.poll() is not None and service.stderr:
            sys.exit(f"error: {service.args!r} ended with {service.returncode}: {service.stderr.read()}")
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(commands.POLL_SECONDS)


def families(metrics: str) -> dict[str, tuple[str, str]]:
    """Returns, from a text of metrics, each one's type and meaning, by the name that its samples have."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", metrics, re.MULTILINE))
    return {
        name + ("_total" if kinds[name] == "counter" else ""): (kinds[name], about)
        for name, about in re.findall(r"^# HELP (\S+) (.*)", metrics, re.MULTILINE)
    }


def running(programs: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of metrics, and links' description, from services that run with all measurements turned on."""
    told: dict[tuple[str, str, str], list[str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        certificate = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=localhost"
        subprocess.run(
            [*certificate.split(), "-keyout", f"{here}/key.pem", "-out", f"{here}/chain.pem"],
            check=True,
            capture_output=True,
        )
        (here / "www").mkdir()
        audited = f"--audit-log {here}/audit.log"
        # Nothing listens at the origin's address, nor at that of the traces' collector. Nobody notices before the first
        # request.
        origin = "--origin s3://bucket --origin-endpoint http://127.0.0.1:9 --origin-allow-http --origin-anonymous"
        services = {
            "links": f"linerate-links serve --database {here}/links.db {audited}",
            "files": f"linerate-files serve --root {here}/www",
            "files with `--origin`": f"linerate-files serve {origin} --origin-cache {here}/cache",
            "api": f"linerate-api serve --database-url sqlite://{here}/api.db {audited}",
            "console": f"linerate console {audited}",
        }
        for name, command in services.items():
            program, *flags = command.split()
            flags += "--listen 127.0.0.1:8090 --tls-listen 127.0.0.1:8443 --admin 127.0.0.1:8091".split()
            flags += f"--cert {here}/chain.pem --key {here}/key.pem --access-log {here}/access.log".split()
            flags += ["--otlp", "http://127.0.0.1:9"]
            service = subprocess.Popen(
                [programs / program, *flags],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
            )
            try:
                asked("http://127.0.0.1:8091/readyz", service)
                metrics = asked("http://127.0.0.1:8091/metrics", service)
                if name == "links":
                    description: dict[str, Any] = json.loads(asked("http://127.0.0.1:8091/openapi.json", service))
            finally:
                service.terminate()
                service.communicate()
            own = f"linerate_{name.split()[0]}_"
            for metric, (kind, about) in families(metrics).items():
                of = told.setdefault((metric.replace(own, "linerate_<service>_"), kind, about), [])
                # A metric that a service always has isn't listed again for the same service with more flags.
                if name.split()[0] not in of:
                    of.append(name)
    rows = [[f"`{name}`", kind, about, ", ".join(of)] for (name, kind, about), of in sorted(told.items())]
    page = (
        "# Metrics\n\nAt `/metrics` of each service's admin listener, in the text format of OpenMetrics. `<service>` is"
        " `links`, `files`, `api` or `console`.\n\n" + table(["metric", "kind", "meaning", "of"], rows)
    )
    return page, description


def pages(programs: Path) -> dict[str, str]:
    metrics, links = running(programs)
    return {
        **{f"{name}.md": command_lines(programs / name) for name in PROGRAMS},
        "metrics.md": metrics,
        "api-links.md": operations("links", links),
        "api-api.md": operations("api", json.loads(said(programs / "linerate-api", "openapi"))),
        "doctor.md": rules(programs),
        "exit-codes.md": exit_codes(programs),
    }


def options(release: str, found: dict[str, dict[str, Any]]) -> str:
    """Returns every option of the modules, with types in the words of a NixOS release."""

    def text(value: Any) -> str:
        return str((value.get("text") if isinstance(value, dict) else value) or "").strip()

    def shown(value: Any) -> str:
        """Returns a value: anything that isn't Nix is returned as it is."""
        if isinstance(value, dict) and value.get("_type") == "literalMD":
            return text(value)
        if "\n" not in text(value):
            return f"`{text(value)}`"
        return "\n\n" + "\n".join(f"  {line}".rstrip() for line in ["```nix", *text(value).splitlines(), "```"])

    parts = [
        f"# NixOS options\n\nOf the flake's `nixosModules.default`, as NixOS {release} has them; `nix build .#options`"
        " has them as JSON too.\n"
    ]
    for name, option in sorted(found.items()):
        facts = [f"- type: {option['type']}"]
        facts += [f"- {fact}: {shown(option[fact])}" for fact in ("default", "example") if text(option.get(fact))]
        where = ", ".join(f"`{one}`" for one in option["declarations"])
        facts.append(f"- declared in {where}")
        heading = name.replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"## {heading}\n\n{text(option.get('description'))}\n\n" + "\n".join(facts) + "\n")
    return "\n".join(parts)


def settle(mode: str, made: dict[str, str]) -> None:
    """Writes pages, or prints which stored ones differ."""
    wrong = []
    for name, text in made.items():
        text = NOTE + text.rstrip() + "\n"
        kept = KEPT / name
        if mode == "write":
            KEPT.mkdir(exist_ok=True)
            kept.write_text(text)
        elif not kept.exists() or kept.read_text() != text:
            wrong.append(f"docs/reference/{name}")
    if wrong:
        sys.exit(f"error: {', '.join(wrong)}: not what the programs and modules say now: 'make docs ARGS=write'")


def main() -> None:
    match sys.argv[1:]:
        case ["options", ("check" | "write") as mode]:
            read = json.load(sys.stdin)
            kept = KEPT / "options.md"
            if mode == "check" and kept.exists() and f"NixOS {read['release']} " not in kept.read_text():
                commands.skipped("the manual's page of options", f"it is of another NixOS than {read['release']}")
                return
            settle(mode, {"options.md": options(read["release"], read["options"])})
        case [("check" | "write") as mode, programs]:
            commands.alone()
            made = pages(Path(programs).resolve())
            settle(mode, made)
            print(f"docs: {len(made)} pages of reference are as the programs say")
        case _:
            sys.exit("usage: reference.py check|write DIRECTORY | options check|write")


if __name__ == "__main__":
    main()
