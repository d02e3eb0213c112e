"""What the suite says: whole lines, under the name of the test that they are about, since several run at a time."""

_about = ""


def about(test: str) -> None:
    """From here on, in this process, it is about this test."""
    global _about
    _about = f"{test}: "


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"vm-test: {_about}{line}", flush=True)
