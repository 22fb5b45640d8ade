"""From the numbers in answers to error codes and errors."""

from __future__ import annotations

from ottla_protocol.errors import ErrorCode


def error_code(number: int) -> ErrorCode:
    """The code of a number; one that this client doesn't know is an unknown server error, as in Java."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
