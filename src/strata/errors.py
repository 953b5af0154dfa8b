"""Errors that a user may meet: each is one clear sentence with the numbers and the option to change."""


class StrataError(Exception):
    """Base of every error whose text is meant for the user (shown without a traceback, exit code 1)."""

    exit_code = 1


class UsageError(StrataError):
    """A wrong option or value on a command line or in a configuration (exit code 2)."""

    exit_code = 2


class FormatError(StrataError):
    """A tensor format that is unknown, or bytes that do not fit it."""


class WeightsError(StrataError):
    """A model file that is missing, truncated, corrupt, or not what it has to be."""


class FamilyError(WeightsError):
    """A model whose architecture or options are not implemented, or whose tensors do not fit its metadata."""


class RequestError(StrataError):
    """A request that cannot be served as asked (too long for the context, bad sampling values, ...)."""


class EngineError(StrataError):
    """The engine process did not start, stopped, or fell out of step."""
