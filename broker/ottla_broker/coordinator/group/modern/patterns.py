"""Regular expressions for topics, in the syntax of RE2, which Kafka's RE2/J shares.

RE2 matches in time linear in the name, whatever the expression, and refuses one whose automaton needs too much memory.
So an expression from a client can't hold up the broker for long: :class:`Matcher` bounds how long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla_protocol.errors import ErrorCode, KafkaError

MAX_BYTES: Final = 256 * 1024
"""The most memory of one compiled expression."""
MAX_LENGTH: Final = 4_096
"""The longest expression, in characters."""
MAX_CLASSES: Final = 100
"""The most classes of Unicode, as ``\\pL``: each takes 70 microseconds to read, and 30 KB."""
MAX_CACHED: Final = 64
"""Compiled expressions that are kept, those that were used last: 16 MiB at most."""

_REQUEST_SECONDS: Final = 0.01
_LOOKED_AT_ONCE: Final = 8

Matches = Callable[[str], bool]
# Those that were used last come last.
_cache: dict[str, Matches] = {}


def compile_pattern(text: str) -> Matches:
    """A function that says whether an expression matches a whole name.

    Raises KafkaError: INVALID_REGULAR_EXPRESSION, with what is wrong and where RE2's syntax is described.
    """
    found = _cache.pop(text, None)
    if found is None:
        found = _compile(text)
        if len(_cache) >= MAX_CACHED:
            del _cache[next(iter(_cache))]
    _cache[text] = found
    return found


def _compile(text: str) -> Matches:
    if len(text) > MAX_LENGTH:
        raise _invalid(f"it has {len(text)} characters, and at most {MAX_LENGTH} are allowed")
    classes = text.count("\\p") + text.count("\\P")
    if classes > MAX_CLASSES:
        raise _invalid(f"it has {classes} classes of Unicode, and at most {MAX_CLASSES} are allowed")
    try:
        import re2
    except ImportError as error:
        raise _invalid(
            "this broker can't read regular expressions: install the Python package google-re2 beside it"
        ) from error
    options = re2.Options()
    options.max_mem = MAX_BYTES
    options.log_errors = False
    # Groups that capture would cost time for each name.
    options.never_capture = True
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise _invalid(f"{why} (in '{text[:200]}')") from error
    finally:
        # The package would keep as many again.
        re2.purge()
    return lambda name: pattern.fullmatch(name) is not None


def _invalid(why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex is not a regular expression in the syntax of RE2: {why}.",
    )


class Matcher:
    """Matches expressions against all topics, a few milliseconds' worth for one request. Owned by the loop thread.

    RE2 takes up to a microsecond for a name, but a thousand for a long name and an expression made for that.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until = 0.0
        # What isn't matched against all names yet, those that were used last at the end.
        self._begun: dict[str, _Begun] = {}

    def begin_request(self) -> None:
        self._until = self._monotonic() + _REQUEST_SECONDS

    def resolve(self, text: str, version: int, names: Sequence[str]) -> tuple[str, ...] | None:
        """The names that an expression matches, sorted; None if the next request has to go on.

        ``version`` is that of the names. Raises as :func:`compile_pattern`.
        """
        matches = compile_pattern(text)
        begun = self._begun.pop(text, None)
        if begun is None or begun.version != version:
            begun = _Begun(version, 0, [])
        for position in range(begun.looked_at, len(names), _LOOKED_AT_ONCE):
            if self._monotonic() >= self._until:
                if len(self._begun) >= MAX_CACHED:
                    del self._begun[next(iter(self._begun))]
                self._begun[text] = begun._replace(looked_at=position)
                return None
            begun.matched.extend(filter(matches, names[position : position + _LOOKED_AT_ONCE]))
        return tuple(sorted(begun.matched))


class _Begun(NamedTuple):
    """A search that has begun: how far the names of a version were looked at, and which of them match."""

    version: int
    looked_at: int
    matched: list[str]
