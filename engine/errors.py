"""The exceptions people see. Their text is one plain line: what is wrong, the value got, what to do next."""


class HeadroomError(Exception):
    """Something outside the program is not as it must be; the command line exits with 1."""


class UsageError(HeadroomError):
    """The request itself cannot be meant (a level of 120 %, a head that does not exist); exit code 2."""


class Cancelled(HeadroomError):
    """The user stopped the work; what was finished is stored. Exit code 130."""
