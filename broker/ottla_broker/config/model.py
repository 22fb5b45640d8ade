"""A configuration key: name, type, default, validator, meaning and effect.

Types and error messages are those of Kafka's ``ConfigDef``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Types, by Kafka's names.
BOOLEAN: Final = "BOOLEAN"
STRING: Final = "STRING"
INT: Final = "INT"
SHORT: Final = "SHORT"
LONG: Final = "LONG"
DOUBLE: Final = "DOUBLE"
LIST: Final = "LIST"
CLASS: Final = "CLASS"
PASSWORD: Final = "PASSWORD"

_INTEGER_BITS = {SHORT: 15, INT: 31, LONG: 63}

HIDDEN: Final = "[hidden]"
"""Stands for a password in messages and in the log, as in Kafka."""

# When a key may change.
READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"

# The effect of a key here.
SUPPORTED: Final = "supported"
IGNORED: Final = "ignored"
UNSUPPORTED: Final = "unsupported"


class ConfigError(Exception):
    """The broker can't start with this configuration; the message is one line that says what to do."""


class InvalidValue(ValueError):
    """A key doesn't accept a value; the message is Kafka's, with key and value."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class Validator(NamedTuple):
    """``check`` returns why a value isn't allowed, or None; ``describe`` is the text of what is allowed."""

    check: Callable[[Any], str | None]
    describe: str


def at_least(low: float) -> Validator:
    return Validator(lambda v: f"Value must be at least {low}" if v < low else None, f"{low} or more")


def between(low: float, high: float) -> Validator:
    def check(value: float) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return Validator(check, f"{low} to {high}")


def between_or(low: int, high: int, default: int) -> Validator:
    def check(value: int) -> str | None:
        if value == default or low <= value <= high:
            return None
        return f"Value must be between {low} and {high} or equal to {default}"

    return Validator(check, f"{low} to {high}, or {default}")


def one_of(*allowed: str) -> Validator:
    text = ", ".join(allowed)
    return Validator(lambda v: None if v in allowed else f"String must be one of: {text}", text)


def each_of(*allowed: str) -> Validator:
    """Require every entry of a list to be one of these."""
    text = ", ".join(allowed)

    def check(values: Sequence[str]) -> str | None:
        return None if all(v in allowed for v in values) else f"String must be one of: {text}"

    return Validator(check, f"list of {text}")


_JAVA_DOUBLE: Final = re.compile(
    r"(?:(?P<hex>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
    r"|(?P<decimal>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?|(?P<name>[+-]?(?:NaN|Infinity))"
)
"""What Java's ``Double.parseDouble`` reads."""


def parse_value(name: str, kind: str, text: str) -> Any:
    """Parse a value of type ``kind``. Raises InvalidValue for another type, or out of range."""
    if kind in (STRING, CLASS):
        return text.strip()
    if kind == PASSWORD:
        return text
    text = text.strip()
    if kind == BOOLEAN:
        lower = text.lower()
        if lower not in ("true", "false"):
            raise InvalidValue(name, text, "Expected value to be either true or false")
        return lower == "true"
    if kind == LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    if kind == DOUBLE:
        if (match := _JAVA_DOUBLE.fullmatch(text)) is None:
            raise InvalidValue(name, text, "Not a number of type DOUBLE")
        return float.fromhex(match["hex"]) if match["hex"] else float(match["decimal"] or match["name"])
    bits = _INTEGER_BITS[kind]
    try:
        if "_" in text:
            raise ValueError
        number = int(text)
    except ValueError as error:
        raise InvalidValue(name, text, f"Not a number of type {kind}") from error
    if not -(1 << bits) <= number < 1 << bits:
        raise InvalidValue(name, text, f"Not a number of type {kind}")
    return number


def format_value(kind: str, value: Any) -> str | None:
    """Write a value as Kafka does; None stays None."""
    if value is None:
        return None
    if kind == BOOLEAN:
        return "true" if value else "false"
    if kind == LIST:
        return ",".join(value)
    if kind == DOUBLE:
        # Java writes a large double's exponent as E308.
        return repr(float(value)).replace("e+", "E")
    return str(value)


@dataclass(eq=False, slots=True)
class Key(Generic[T]):
    """One configuration key, declared once.

    As a class attribute it takes its name from the attribute: ``num_network_threads`` is ``num.network.threads``. On an
    instance it reads as the value, which the instance's ``__dict__`` holds.

    Attributes:
        effect: SUPPORTED, UNSUPPORTED (refused unless it requests nothing) or IGNORED.
        note: what is particular to Ottla; for a key without effect, the reason.
        harmless: values other than the default that request no missing feature.
    """

    kind: str
    default: T
    meaning: str
    validator: Validator | None = None
    mode: str = READ_ONLY
    _: KW_ONLY
    name: str = ""
    effect: str = SUPPORTED
    note: str = ""
    harmless: tuple[object, ...] = ()

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type) -> Key[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Key[T] | T:
        # An instance that holds a value answers from its __dict__ without coming here.
        return self if instance is None else self.default

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Any:
        """Parse and check a value. Raises InvalidValue if the key doesn't accept it."""
        value = parse_value(self.name, self.kind, text)
        reason = self.validator.check(value) if self.validator is not None else None
        if reason is not None:
            shown = HIDDEN if self.sensitive else format_value(self.kind, value)
            raise InvalidValue(self.name, shown, reason)
        return value

    def is_requested(self, value: object) -> bool:
        """Whether setting the key to this value requests anything."""
        return value != self.default and value not in self.harmless

    @property
    def sensitive(self) -> bool:
        return self.kind == PASSWORD

    @property
    def documentation(self) -> str:
        """The meaning, followed by the note."""
        return f"{self.meaning} {self.note}" if self.note else self.meaning


@cache
def keys_of(owner: type) -> Mapping[str, Key[Any]]:
    """Return the keys that a class and its bases declare, sorted by name."""
    found: dict[str, Key[Any]] = {}
    for base in owner.__mro__:
        for value in vars(base).values():
            if isinstance(value, Key):
                found.setdefault(value.name, value)
    return dict(sorted(found.items()))


def nearest(name: str, known: Mapping[str, object]) -> str | None:
    """Return the known key closest to a misspelt one, if any is close."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.75)
    return found[0] if found else None


def integer(
    default: int, meaning: str, validator: Validator | None = None, mode: str = READ_ONLY, note: str = ""
) -> Key[int]:
    return Key(INT, default, meaning, validator, mode, note=note)


def long(
    default: int, meaning: str, validator: Validator | None = None, mode: str = READ_ONLY, note: str = ""
) -> Key[int]:
    return Key(LONG, default, meaning, validator, mode, note=note)


def optional(
    kind: str, meaning: str, validator: Validator | None = None, mode: str = READ_ONLY, note: str = ""
) -> Key[int | None]:
    """Declare an integer key without a default."""
    checked = (
        Validator(lambda v: None if v is None else validator.check(v), validator.describe)
        if validator
        else None
    )
    return Key(kind, None, meaning, checked, mode, note=note)


def boolean(default: bool, meaning: str, mode: str = READ_ONLY, note: str = "") -> Key[bool]:
    return Key(BOOLEAN, default, meaning, None, mode, note=note)


def string(
    default: str, meaning: str, validator: Validator | None = None, mode: str = READ_ONLY, note: str = ""
) -> Key[str]:
    return Key(STRING, default, meaning, validator, mode, note=note)


def optional_string(
    meaning: str, validator: Validator | None = None, *, kind: str = STRING, note: str = ""
) -> Key[str | None]:
    return Key(kind, None, meaning, validator, note=note)
