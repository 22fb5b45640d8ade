"""Regular expressions for topics, in the syntax of RE2, which Kafka's RE2/J shares.

RE2 matches in time linear in the name, whatever the expression, and refuses one whose automaton needs too much memory.
So an expression from a client can't hold up the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla_protocol.errors import ErrorCode, KafkaError

MAX_BYTES: Final = 256 * 1024
"""The most memory of one compiled expression."""
MAX_LENGTH: Final = 4_096
"""The longest expression, in characters."""
MAX_CACHED: Final = 64
"""Compiled expressions that are kept, those that were used last: 16 MiB at most."""

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


def resolve(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that an expression matches, sorted. Raises as :func:`compile_pattern`."""
    matches = compile_pattern(text)
    return tuple(sorted(name for name in names if matches(name)))
