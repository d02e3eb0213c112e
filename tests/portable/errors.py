"""What the driver raises."""


class Failure(Exception):
    """The machine does otherwise than a script says, or does not answer in time."""
