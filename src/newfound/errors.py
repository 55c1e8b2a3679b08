"""The exceptions a user is meant to read."""


class UserError(Exception):
    """Something the person running newfound can mend; its text says what was found and what to do.

    The command line prints the text alone and exits with status 2; Python callers catch it like any exception.
    """

    of_first = False  # of several processes: True where this one was only told of the first one's error


class LostProcess(UserError):
    """Another process of a run of several has ended."""
