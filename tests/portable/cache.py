"""What takes long to make is kept below ~/.cache/linerate/portable, by the content of what made it."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linerate" / "portable"


def digest(*parts: str | bytes) -> str:
    """A name for this content."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8) + data)
    return whole.hexdigest()[:16]


def kept(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The directory of this kind and key, made where it is not there yet; earlier ones of its kind go."""
    ROOT.mkdir(parents=True, exist_ok=True)
    path = ROOT / f"{kind}-{key}"
    # Two runs at a time make it once.
    with open(ROOT / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path
        for old in ROOT.glob(f"{kind}-*"):
            shutil.rmtree(old)
        unfinished = ROOT / f"{kind}-unfinished"
        unfinished.mkdir()
        make(unfinished)
        unfinished.rename(path)
    return path
