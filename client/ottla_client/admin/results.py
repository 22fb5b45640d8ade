"""The results of calls about several items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ottla_protocol.errors import ErrorCode

from ..errors import ClientError, GroupError

K = TypeVar("K")
V = TypeVar("V")


class PartialError(ClientError):
    """Some items of a call failed.

    ``results`` has the others and ``errors`` the failures, both by the call's keys (a topic's name, a TopicPartition, a
    ConfigResource, a group, a broker's id). A call about one item raises that item's error instead.
    """

    def __init__(self, what: str, results: Mapping[Any, Any], errors: Mapping[Any, ClientError]) -> None:
        first = next(iter(errors.values()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        total = len(results) + len(errors)
        super().__init__(f"{what}: {len(errors)} of {total} failed: {first}{more}")
        self.results = dict(results)
        self.errors = dict(errors)


def results_or_raise(what: str, outcomes: Mapping[K, V | ClientError]) -> dict[K, V]:
    """The results if nothing failed. Raises the error of a single item, or PartialError for several."""
    results: dict[K, V] = {}
    errors: dict[K, ClientError] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            errors[key] = outcome
        else:
            results[key] = outcome
    if not errors:
        return results
    if len(outcomes) == 1:
        raise next(iter(errors.values()))
    raise PartialError(what, results, errors)


def is_unknown_group(error: object) -> bool:
    """Whether an error says that the group doesn't exist."""
    return isinstance(error, GroupError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
