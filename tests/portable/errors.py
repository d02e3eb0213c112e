"""Exceptions of the driver."""


class Failure(Exception):
    """The machine behaves differently than the script expects, or does not answer in time."""


class Hang(Failure):
    """The machine's root shell does not answer. Only the guest's kernel can cause that."""
