"""packages.py ROOT WORK: installs what WORK contains (dist/*.deb, dist/*.tar.xz, installed/), each in a copy of the
Debian in the archive ROOT, and checks that it serves, is replaced and is removed as a user expects. Run by
.ci/packages.sh, in separate namespaces.
"""

import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVICES = ("links", "files", "api")
# The public and the admin listener of each, as in .ci/dist/etc.
PORTS = {"links": (8080, 8081), "files": (8090, 8091), "api": (8100, 8101)}
CONSOLE = 8110
# The console and its helpers: these are given their sockets, and are ready once these exist.
BESIDE = ("console-helper", "files-writer")
PATIENCE_SECONDS = 60


class Failed(Exception):
    """Something isn't as it should be."""


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
        """Returns what a command prints that root runs there."""
        done = subprocess.run(["chroot", self.path, *command], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{' '.join(command)} ends with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def files(self) -> set[str]:
        """Returns all files there, except what Debian's programs write wherever they like."""
        noise = ("proc/", "dev/", "tmp/", "var/cache/", "var/log/", "var/lib/dpkg/", "run/")
        paths = (str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_mount())
        return {path for path in paths if not path.startswith(noise)}

    def has(self, *paths: str) -> None:
        for path in paths:
            expect((self.path / path.lstrip("/")).exists(), f"there is no {path}")


def asked(port: int, path: str, body: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Returns an answer's status, Location and body."""

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


def unit(root: Root, prefix: str, name: str) -> dict[str, str]:
    """Returns the keys of a unit."""
    text = (root.path / prefix.lstrip("/") / f"lib/systemd/system/linerate-{name}").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def begin(root: Root, prefix: str, name: str) -> subprocess.Popen[bytes]:
    """Starts a service with its unit's command, as the unit's user, with its directories and the socket that it is
    given."""
    keys = unit(root, prefix, f"{name}.service")
    user = keys.get("User", "root")
    state = root.path / f"var/lib/linerate-{name}"
    owned = [state] if "StateDirectory" in keys else []
    if "RuntimeDirectory" in keys:
        owned.append(root.path / "run" / keys["RuntimeDirectory"])
    for directory in owned:
        directory.mkdir(exist_ok=True)
        root.run("chown", f"{user}:", f"/{directory.relative_to(root.path)}")
    command = ["setpriv", "--reuid", user, "--regid", keys.get("Group", user), "--clear-groups", "--no-new-privs"]
    command += ["env", "-i", f"STATE_DIRECTORY=/{state.relative_to(root.path)}"]
    given = None
    if name in BESIDE:
        keys |= unit(root, prefix, f"{name}.socket")
        given = socket.socket(socket.AF_UNIX)
        path = root.path / keys["ListenStream"].lstrip("/")
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        given.bind(str(path))
        given.listen(int(keys["Backlog"]))
        root.run("chown", keys["SocketUser"], keys["ListenStream"])
        root.run("chmod", keys["SocketMode"], keys["ListenStream"])
        command += ["LISTEN_FDS=1", f"LISTEN_FDNAMES={keys['FileDescriptorName']}"]
    # systemd itself sets LISTEN_PID to the process's id.
    command += ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *keys["ExecStart"].split()]

    def third() -> None:
        if given:
            os.dup2(given.fileno(), 3)
            # dup2 of descriptor 3 onto itself would leave it close-on-exec.
            os.set_inheritable(3, True)

    with (root.path / "serving.log").open("ab") as log:
        running = subprocess.Popen(
            ["chroot", root.path, *command], stdout=log, stderr=log, preexec_fn=third, close_fds=False
        )
    if given:
        given.close()
    return running


@contextmanager
def serving(root: Root, prefix: str) -> Iterator[None]:
    """Runs the services, and the console with its helpers."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name in (*SERVICES, *BESIDE, "console"):
            running.append(begin(root, prefix, name))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(is_ready(admin) for admin in (*(PORTS[name][1] for name in SERVICES), CONSOLE + 1)):
            ended = [process.args for process in running if process.poll() is not None]
            expect(not ended, f"ended: {ended}")
            expect(time.monotonic() < deadline, "the services are not ready")
            time.sleep(0.05)
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            ended = process.wait(PATIENCE_SECONDS)
            # The console's helpers keep nothing open that they would have to close cleanly.
            beside = isinstance(process.args, list) and not {*BESIDE}.isdisjoint(map(str, process.args))
            expect(ended == 0 or (beside and ended == -signal.SIGTERM), f"{process.args} ends with {ended}")


def looks_after(root: Root, prefix: str) -> None:
    """Somebody with a key for links signs in to the console, creates a directory through the files writer, and sees the
    queues."""
    made = as_links(root, prefix, "--json", "key", "add", "operator", "--scope", "write")
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    place = f"http://127.0.0.1:{CONSOLE}"

    def page(path: str, form: dict[str, str] | None = None) -> str:
        data = urllib.parse.urlencode(form).encode() if form else None
        with browser.open(urllib.request.Request(place + path, data, {"origin": place}), timeout=30) as answer:
            return str(answer.read().decode())

    def token(text: str) -> str:
        found = re.search('name="csrf" value="([^"]*)"', text)
        expect(found is not None, "a page of the console has no form")
        return found[1] if found else ""

    key = json.loads(made)["key"]
    page("/sign-in", {"csrf": token(page("/sign-in")), "next": "/", "key": key})
    files = page("/files")
    expect("hello.txt" in files, "the console does not show what files serves")
    name = f"made-{len(list((root.path / 'var/lib/linerate-files').iterdir()))}"
    page("/files/directory", {"csrf": token(files), "path": "/", "name": name})
    expect((root.path / "var/lib/linerate-files" / name).is_dir(), "what writes files makes no directory")
    expect("Queues" in page("/queues"), "the console has no queues")


def as_links(root: Root, prefix: str, *command: str) -> str:
    """Returns what a command on the database of links prints."""
    user = ["setpriv", "--reuid", "linerate-links", "--regid", "linerate-links", "--clear-groups"]
    database = ("--database", "/var/lib/linerate-links/links.db")
    return root.run(*user, f"{prefix}/bin/linerate-links", *command, *database)


def serves(root: Root, prefix: str, stored: bool = False) -> None:
    """Each service does its job with the settings that came with it, or serves what it has `stored` before."""
    (root.path / "var/lib/linerate-files/hello.txt").write_text("hello\n")
    with serving(root, prefix):
        expect(asked(8090, "/hello.txt")[2] == "hello\n", "files does not serve")
        if not stored:
            status, _, body = asked(8100, "/v1/users", {"email": "ada@example.org", "name": "Ada"})
            expect(status == 201, f"api answers {status}: {body}")
            as_links(root, prefix, "add", "https://example.com/", "--code", "here")
        expect("ada@example.org" in asked(8100, "/v1/users?q=ada")[2], "api has lost a user")
        status, place, _ = asked(8080, "/here")
        expect((status, place) == (307, "https://example.com/"), f"links answers {status} {place}")
        looks_after(root, prefix)


def beside(root: Root) -> None:
    """Turns on the console's optional helpers, as its settings describe."""
    for name in ("console", "files"):
        settings = root.path / f"etc/linerate/{name}.toml"
        more = "admin-browse = true\n" if name == "files" else ""
        settings.write_text(re.sub("(?m)^# (?=(helper|files-writer) = )", "", settings.read_text()) + more)


def documented(root: Root, prefix: str, zsh: str) -> None:
    """Each program has its manual pages and completions."""
    share = f"{prefix}/share"
    for name in ("linerate", *(f"linerate-{name}" for name in SERVICES)):
        root.has(f"{prefix}/bin/{name}", f"{share}/man/man1/{name}.1.gz", f"{share}/{zsh}/_{name}")
        root.has(f"{share}/fish/vendor_completions.d/{name}.fish")
        root.run("bash", "-n", f"{share}/bash-completion/completions/{name}")
        root.run(f"{prefix}/bin/{name}", "--version")


def consistent(root: Root, prefix: str) -> None:
    """Units name only units that are installed, and settings can be read only by root and their service's group."""
    units = root.path / prefix.lstrip("/") / "lib/systemd/system"
    for path in units.iterdir():
        for name in re.findall(r"\blinerate-[a-z0-9-]+\.(?:service|socket)\b", path.read_text()):
            expect((units / name).exists(), f"{path.name} names {name}, which is not installed")
    private(root)


def private(root: Root) -> None:
    for name in (*SERVICES, "console"):
        state = root.run("stat", "--format", "%a %U %G", f"/etc/linerate/{name}.toml").strip()
        expect(state == f"640 root linerate-{name}", f"{name}.toml is {state}")


def package(root: Root, deb: Path) -> None:
    before = root.files()
    (root.path / "linerate.deb").write_bytes(deb.read_bytes())
    root.run("dpkg", "--install", "/linerate.deb")
    documented(root, "/usr", "zsh/vendor-completions")
    consistent(root, "/usr")
    without_tmpfiles(root)
    beside(root)
    serves(root, "/usr")

    # The next version keeps settings and stored data.
    settings = root.path / "etc/linerate/links.toml"
    settings.write_text(settings.read_text() + "max-connections = 1000\n")
    root.run("dpkg", "--install", "--force-confold", "/linerate.deb")
    expect("max-connections = 1000" in settings.read_text(), "an update forgets settings")
    serves(root, "/usr", stored=True)

    root.run("dpkg", "--remove", "linerate")
    root.has("/etc/linerate/links.toml", "/var/lib/linerate-links/links.db")
    root.run("dpkg", "--purge", "linerate")
    (root.path / "linerate.deb").unlink()
    # State belongs to its owner; users stay, since files belong to them.
    stays = ("var/lib/linerate-", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/.pwd.lock")
    left = {path for path in root.files() - before if not path.startswith(stays)} - {"serving.log"}
    expect(not left, f"purged, and still there: {sorted(left)}")


def without_tmpfiles(root: Root) -> None:
    """On a system without systemd-tmpfiles, the package makes settings private itself."""
    program = root.path / root.run("sh", "-c", "realpath $(command -v systemd-tmpfiles)").strip().lstrip("/")
    root.run("sh", "-c", "chown root: /etc/linerate/*.toml && chmod 644 /etc/linerate/*.toml")
    away = program.rename(program.with_name("away"))
    root.run("/var/lib/dpkg/info/linerate.postinst", "configure")
    away.rename(program)
    private(root)


def archive(root: Root, packed: Path) -> None:
    """Installs the archive by hand, as its README describes, and once more, as an update."""
    unpacked(root, packed)
    settings = root.path / "etc/linerate/links.toml"
    settings.write_text(settings.read_text() + "max-connections = 1000\n")
    (root.path / "etc/linerate/api.toml").unlink()
    unpacked(root, packed)
    expect("max-connections = 1000" in settings.read_text(), "an update from the archive forgets settings")
    documented(root, "/usr/local", "zsh/site-functions")
    consistent(root, "/usr/local")
    beside(root)
    serves(root, "/usr/local")


def unpacked(root: Root, packed: Path) -> None:
    subprocess.run(
        ["tar", "--extract", "--file", packed, "--strip-components=1", "--directory", root.path / "usr/local"],
        check=True,
    )
    root.has("/usr/local/share/doc/linerate/README.md")
    root.run("mkdir", "-p", "/etc/linerate")
    missing = '[ -e "/etc/linerate/$name" ] || cp "$name" /etc/linerate'
    root.run("sh", "-ec", f"cd /usr/local/share/doc/linerate/examples; for name in *.toml; do {missing}; done")
    users(root)


def installed(root: Root, tree: Path) -> None:
    subprocess.run(["cp", "-a", f"{tree}/.", root.path], check=True)
    users(root)
    documented(root, "/usr/local", "zsh/site-functions")
    consistent(root, "/usr/local")
    beside(root)
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
