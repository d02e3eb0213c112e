"""packages.py ROOT WORK: sets up what WORK holds (dist/*.deb, dist/*.tar.xz, installed/), each in a copy of the Debian in
the archive ROOT, and looks whether it serves, is replaced and goes as a user expects. Run by .ci/packages.sh, in
namespaces of its own.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVICES = ("links", "files", "api")
# The public and the admin listener of each, as .ci/dist/etc has them.
PORTS = {"links": (8080, 8081), "files": (8090, 8091), "api": (8100, 8101)}
PATIENCE_SECONDS = 60


class Failed(Exception):
    """What is not as it should be."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failed(what)


class Root:
    """A fresh Debian."""

    def __init__(self, archive: Path, path: Path) -> None:
        self.path = path
        path.mkdir()
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", path], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", path / "proc"], check=True)
        subprocess.run(["mount", "--bind", "/dev", path / "dev"], check=True)

    def run(self, *command: str) -> str:
        """What a command prints that root runs there."""
        done = subprocess.run(["chroot", self.path, *command], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{' '.join(command)} ends with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def files(self) -> set[str]:
        """All that is there, but for what programs of Debian write where they will."""
        noise = ("proc/", "dev/", "tmp/", "var/cache/", "var/log/", "var/lib/dpkg/", "run/")
        paths = (str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_mount())
        return {path for path in paths if not path.startswith(noise)}

    def has(self, *paths: str) -> None:
        for path in paths:
            expect((self.path / path.lstrip("/")).exists(), f"there is no {path}")


def asked(port: int, path: str, body: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, Location and body of an answer."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    try:
        answer = urllib.request.build_opener(Stay).open(request, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status or 0, answer.headers.get("location", ""), answer.read().decode()


def is_ready(port: int) -> bool:
    try:
        return asked(port, "/readyz")[0] == 200
    except OSError:
        return False


@contextmanager
def serving(root: Root, prefix: str) -> Iterator[None]:
    """The services, by the command of their units, as the units' users, each in its state directory."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name in SERVICES:
            unit = (root.path / prefix.lstrip("/") / f"lib/systemd/system/linerate-{name}.service").read_text()
            keys = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
            user, state = keys["User"], f"/var/lib/{keys['User']}"
            (root.path / state.lstrip("/")).mkdir(exist_ok=True)
            if "StateDirectory" in keys:
                root.run("chown", f"{user}:", state)
            command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
            command += ["env", "-i", f"STATE_DIRECTORY={state}", *keys["ExecStart"].split()]
            with (root.path / "serving.log").open("ab") as log:
                running.append(subprocess.Popen(["chroot", root.path, *command], stdout=log, stderr=log))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(is_ready(PORTS[name][1]) for name in SERVICES):
            ended = [process.args for process in running if process.poll() is not None]
            expect(not ended, f"ended: {ended}")
            expect(time.monotonic() < deadline, "the services are not ready")
            time.sleep(0.05)
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            expect(process.wait(PATIENCE_SECONDS) == 0, f"{process.args} ends with {process.returncode}")


def serves(root: Root, prefix: str, stored: bool = False) -> None:
    """Each service does what it is for, from the settings that came with it, or serves what it has `stored` before."""
    (root.path / "var/lib/linerate-files/hello.txt").write_text("hello\n")
    with serving(root, prefix):
        expect(asked(8090, "/hello.txt")[2] == "hello\n", "files does not serve")
        if not stored:
            status, _, body = asked(8100, "/v1/users", {"email": "ada@example.org", "name": "Ada"})
            expect(status == 201, f"api answers {status}: {body}")
            as_links = ["setpriv", "--reuid", "linerate-links", "--regid", "linerate-links", "--clear-groups"]
            root.run(*as_links, f"{prefix}/bin/linerate-links", "add", "https://example.com/", "--code", "here",
                     "--database", "/var/lib/linerate-links/links.db")  # fmt: skip
        expect("ada@example.org" in asked(8100, "/v1/users?q=ada")[2], "api has lost a user")
        status, place, _ = asked(8080, "/here")
        expect((status, place) == (307, "https://example.com/"), f"links answers {status} {place}")


def documented(root: Root, prefix: str, zsh: str) -> None:
    """Each program has its manual pages and completions."""
    share = f"{prefix}/share"
    for name in ("linerate", *(f"linerate-{name}" for name in SERVICES)):
        root.has(f"{prefix}/bin/{name}", f"{share}/man/man1/{name}.1.gz", f"{share}/{zsh}/_{name}")
        root.has(f"{share}/fish/vendor_completions.d/{name}.fish")
        root.run("bash", "-n", f"{share}/bash-completion/completions/{name}")
        root.run(f"{prefix}/bin/{name}", "--version")


def package(root: Root, deb: Path) -> None:
    before = root.files()
    (root.path / "linerate.deb").write_bytes(deb.read_bytes())
    root.run("dpkg", "--install", "/linerate.deb")
    documented(root, "/usr", "zsh/vendor-completions")
    serves(root, "/usr")

    # The next version keeps what was set and what was stored.
    settings = root.path / "etc/linerate/links.toml"
    settings.write_text(settings.read_text() + "max-connections = 1000\n")
    root.run("dpkg", "--install", "--force-confold", "/linerate.deb")
    expect("max-connections = 1000" in settings.read_text(), "an update forgets settings")
    serves(root, "/usr", stored=True)

    root.run("dpkg", "--remove", "linerate")
    root.has("/etc/linerate/links.toml", "/var/lib/linerate-links/links.db")
    root.run("dpkg", "--purge", "linerate")
    (root.path / "linerate.deb").unlink()
    # State is whoever's it is; users stay, since files are theirs.
    stays = ("var/lib/linerate-", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/.pwd.lock")
    left = {path for path in root.files() - before if not path.startswith(stays)} - {"serving.log"}
    expect(not left, f"purged, and still there: {sorted(left)}")


def archive(root: Root, packed: Path) -> None:
    """By hand, as the README in it says."""
    subprocess.run(
        ["tar", "--extract", "--file", packed, "--strip-components=1", "--directory", root.path / "usr/local"],
        check=True,
    )
    root.has("/usr/local/share/doc/linerate/README.md")
    root.run("mkdir", "/etc/linerate")
    root.run("sh", "-c", "cp /usr/local/share/doc/linerate/examples/*.toml /etc/linerate")
    users(root)
    documented(root, "/usr/local", "zsh/site-functions")
    serves(root, "/usr/local")


def installed(root: Root, tree: Path) -> None:
    subprocess.run(["cp", "-a", f"{tree}/.", root.path], check=True)
    users(root)
    documented(root, "/usr/local", "zsh/site-functions")
    serves(root, "/usr/local")


def users(root: Root) -> None:
    root.run("systemd-sysusers", "/usr/local/lib/sysusers.d/linerate.conf")
    root.run("systemd-tmpfiles", "--create", "/usr/local/lib/tmpfiles.d/linerate.conf")


def main() -> None:
    debian, work = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Nobody else sees what is mounted here.
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    (deb,) = (work / "dist").glob("*.deb")
    (packed,) = (work / "dist").glob("*.tar.xz")
    try:
        package(Root(debian, work / "package"), deb)
        print("packages: the Debian package is set up, serves, is replaced and goes")
        archive(Root(debian, work / "archive"), packed)
        print("packages: the archive serves from /usr/local")
        installed(Root(debian, work / "root"), work / "installed")
        print("packages: make install serves from /usr/local")
    except Failed as error:
        for log in work.glob("*/serving.log"):
            print(log.read_text()[-2000:], file=sys.stderr)
        sys.exit(f"error: packages: {error}")


main()
