"""What the handlers of transactions share."""

from __future__ import annotations

from ottla_broker.coordinator import codes


def producer_error(error: int, has_fenced: bool) -> int:
    """The error in the words of older versions, which don't have PRODUCER_FENCED."""
    return codes.INVALID_PRODUCER_EPOCH if error == codes.PRODUCER_FENCED and not has_fenced else error
