"""What the driver raises."""


class Failure(Exception):
    """The machine does otherwise than a script says, or does not answer in time."""


class Hang(Failure):
    """Not even the root shell of the machine answers, which nothing in the machine can end but its kernel."""
