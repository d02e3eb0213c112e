"""Keeps what takes long to make below ~/.cache/linerate/portable, named by a hash of its inputs."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

_UNUSED_SECONDS = 3 * 86400
ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linerate" / "portable"


def digest(*parts: str | bytes) -> str:
    """Returns a name that depends on this content alone."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8) + data)
    return whole.hexdigest()[:16]


def kept(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Returns the directory of this kind and key, made if missing. Deletes others that were not used for days."""
    ROOT.mkdir(parents=True, exist_ok=True)
    path = ROOT / f"{kind}-{key}"
    # With this lock, two concurrent runs make the directory only once.
    with open(ROOT / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for old in ROOT.glob(f"{kind}-*"):
            # Recently used ones stay, for other branches of the project.
            if old != path and time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(old)
        if not path.exists():
            unfinished = ROOT / f"unfinished-{kind}"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(path)
        os.utime(path)
    return path
