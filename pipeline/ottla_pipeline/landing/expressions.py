"""Conditions in Spark's SQL, as far as Arrow can evaluate them exactly as Spark does.

That is: comparisons, ``IN``, ``BETWEEN``, ``LIKE``, ``IS NULL`` and ``length()`` of columns and literals, with ``AND``,
``OR``, ``NOT``. Comparisons whose outcome depends on Spark's settings, such as the session's time zone or ANSI mode,
are not among them. Whatever else there is raises :class:`Unknown`, when the condition is compiled.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Values = Any
"""A column, or a scalar."""
_TOKENS = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?![\w.])|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<mark><=>|<>|!=|<=|>=|==|[=<>(),.-]))",
    re.ASCII,
)
_COMPARE = {
    "=": "eq",
    "==": "eq",
    "<>": "ne",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "<=>": "same",
}
_LENGTHS = ("length", "char_length", "character_length", "len")
_EXACT = 1 << 24
"""Integers up to this one are exact in FLOAT and DOUBLE."""
_DEEPEST = 50
"""How deeply parentheses and NOT may be nested."""
_LONGEST_PATTERN = 1_000
"""The characters of a LIKE pattern. Longer ones may be too large for Arrow's regular expressions."""
_MOST_DIGITS = 38


class Unknown(Exception):
    """The condition has something that can't be evaluated; the text says what."""


@dataclass(frozen=True)
class _Term:
    """A part of a condition: its type, and what computes it from a table."""

    kind: pa.DataType
    of: Callable[[pa.Table], Values]
    literal: Any = None
    """The value, if it is one that was written down."""


Condition = Callable[[pa.Table], Values]


def compiled(text: str, schema: pa.Schema) -> Condition:
    """What computes the condition for every row: true, false or null. Raises Unknown."""
    parser = _Parser(text, schema)
    try:
        term = parser.either()
        parser.end()
        found = _condition(term).of
        # What Arrow can't compute, it refuses without rows, too: so no row stops a job.
        found(schema.empty_table())
    except (ValueError, ArithmeticError, NotImplementedError, pa.ArrowException) as error:
        raise Unknown(f"what Arrow can't compute ({str(error).splitlines()[0][:100]})") from error
    return found


class _Parser:
    """Tokens from left to right; each method takes what binds at least as much as its name."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._tokens: list[tuple[str, str]] = []
        self._at = self._depth = at = 0
        text = text.strip()
        while at < len(text):
            found = _TOKENS.match(text, at)
            if found is None or found.lastgroup is None:
                raise Unknown(text[at : at + 40].strip())
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise Unknown(self._tokens[self._at][1])

    def either(self) -> _Term:
        terms = [self._both()]
        while self._word("or"):
            terms.append(self._both())
        return _joined(pc.or_kleene, terms)

    def _both(self) -> _Term:
        terms = [self._not()]
        while self._word("and"):
            terms.append(self._not())
        return _joined(pc.and_kleene, terms)

    def _not(self) -> _Term:
        return _inverted(_condition(self._inside(self._not))) if self._word("not") else self._predicate()

    def _inside(self, part: Callable[[], _Term]) -> _Term:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unknown(f"a part that is nested more than {_DEEPEST} deep")
        found = part()
        self._depth -= 1
        return found

    def _predicate(self) -> _Term:
        left = self._operand()
        kind, value = self._peek()
        if kind == "mark" and value in _COMPARE:
            self._at += 1
            return _compared(_COMPARE[value], left, self._operand())
        if self._word("is"):
            inverted = self._word("not")
            self._expect_word("null")
            return _inverted(_is_null(left)) if inverted else _is_null(left)
        inverted = self._word("not")
        for word, make in (("in", self._in), ("between", self._between), ("like", self._like)):
            if self._word(word):
                return _inverted(make(left)) if inverted else make(left)
        if inverted:
            raise Unknown("NOT " + self._peek()[1])
        return left

    def _in(self, left: _Term) -> _Term:
        self._expect("(")
        found = [_compared("eq", left, self._operand())]
        while self._mark(","):
            found.append(_compared("eq", left, self._operand()))
        self._expect(")")
        return _joined(pc.or_kleene, found)

    def _between(self, left: _Term) -> _Term:
        low = self._operand()
        self._expect_word("and")
        return _joined(pc.and_kleene, [_compared("ge", left, low), _compared("le", left, self._operand())])

    def _like(self, left: _Term) -> _Term:
        pattern = self._operand()
        if not (isinstance(pattern.literal, str) and pa.types.is_string(left.kind)):
            raise Unknown("LIKE without a pattern in quotes")
        if len(pattern.literal) > _LONGEST_PATTERN:
            raise Unknown(f"a LIKE pattern of more than {_LONGEST_PATTERN:,} characters")
        # Every other character stands for itself, line ends too.
        parts = ("." if one == "_" else ".*" if one == "%" else re.escape(one) for one in pattern.literal)
        expression = "(?s)^" + "".join(parts) + "$"
        return _Term(pa.bool_(), lambda table: pc.match_substring_regex(left.of(table), expression))

    def _operand(self) -> _Term:
        if self._mark("("):
            inner = self._inside(self.either)
            self._expect(")")
            return inner
        sign = "-" if self._mark("-") else ""
        kind, value = self._take()
        if kind == "number":
            return _number(sign + value)
        if sign:
            raise Unknown("-" + value)
        if kind == "text":
            return _literal(value[1:-1], pa.string())
        if kind == "quoted":
            return self._column(value[1:-1].replace("``", "`"))
        if kind != "word":
            raise Unknown(value or "the end")
        return self._named(value)

    def _named(self, word: str) -> _Term:
        """A word: TRUE, DATE '…', a function, or a column."""
        kind, value = self._peek()
        if word.lower() in ("true", "false"):
            return _literal(word.lower() == "true", pa.bool_())
        if word.lower() in ("date", "timestamp") and kind == "text":
            self._at += 1
            return _date(value[1:-1]) if word.lower() == "date" else _timestamp(value[1:-1])
        if word.lower() in _LENGTHS and self._mark("("):
            text = self._operand()
            self._expect(")")
            if not pa.types.is_string(text.kind):
                raise Unknown(f"{word}() of {text.kind}")
            return _Term(pa.int32(), lambda table: pc.utf8_length(text.of(table)))
        if (kind, value) == ("mark", "("):
            raise Unknown(f"{word}()")
        return self._column(word)

    def _column(self, name: str) -> _Term:
        field = _field(list(self._schema), name)
        at = self._schema.names.index(field.name)
        path: list[str] = []
        kind = field.type
        while self._mark("."):
            token, value = self._take()
            inner = value[1:-1].replace("``", "`") if token == "quoted" else value
            if token not in ("quoted", "word") or not pa.types.is_struct(kind):
                raise Unknown(f"{name}.{value}")
            found = _field(list(kind), inner)
            path.append(found.name)
            kind = found.type
        if not path:
            return _Term(kind, lambda table: table.column(at))
        return _Term(kind, lambda table: pc.struct_field(table.column(at), path))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _word(self, wanted: str) -> bool:
        kind, value = self._peek()
        found = kind == "word" and value.lower() == wanted
        self._at += found
        return found

    def _mark(self, wanted: str) -> bool:
        found = self._peek() == ("mark", wanted)
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._mark(mark):
            raise Unknown(self._peek()[1] or f"no {mark}")

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise Unknown(self._peek()[1] or f"no {word.upper()}")


def _field(fields: list[pa.Field], name: str) -> pa.Field:
    found = [one for one in fields if one.name.lower() == name.lower()]
    if len(found) != 1:
        raise Unknown(name)
    return found[0]


def _literal(value: Any, kind: pa.DataType) -> _Term:
    scalar = pa.scalar(value, kind)
    return _Term(kind, lambda _: scalar, value)


def _number(text: str) -> _Term:
    if "e" in text.lower():
        if math.isinf(float(text)):
            raise Unknown(text)
        return _literal(float(text), pa.float64())
    value = Decimal(text)
    if "." not in text:
        if not -(1 << 63) <= int(value) < 1 << 63:
            raise Unknown(text)
        return _literal(int(value), pa.int64())
    digits, exponent = len(value.as_tuple().digits), -int(value.as_tuple().exponent)
    if max(digits, exponent) > _MOST_DIGITS:
        raise Unknown(text)
    return _literal(value, pa.decimal128(max(digits, exponent, 1), exponent))


def _date(text: str) -> _Term:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise Unknown(f"DATE '{text}'")
    try:
        return _literal(dt.date.fromisoformat(text), pa.date32())
    except ValueError:
        raise Unknown(f"DATE '{text}'") from None


def _timestamp(text: str) -> _Term:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)", text):
        raise Unknown(f"TIMESTAMP '{text}', which has no time zone")
    try:
        return _literal(dt.datetime.fromisoformat(text).astimezone(dt.UTC), pa.timestamp("us", "UTC"))
    except ValueError:
        raise Unknown(f"TIMESTAMP '{text}'") from None


def _condition(term: _Term) -> _Term:
    if not pa.types.is_boolean(term.kind):
        raise Unknown(f"a {term.kind} as a condition")
    return term


def _joined(join: Callable[[Values, Values], Values], terms: Sequence[_Term]) -> _Term:
    """All terms, however many, at one depth."""
    if len(terms) == 1:
        return terms[0]
    each = [_condition(one).of for one in terms]
    return _Term(pa.bool_(), lambda table: reduce(join, (of(table) for of in each)))


def _inverted(term: _Term) -> _Term:
    return _Term(pa.bool_(), lambda table: pc.invert(term.of(table)))


def _is_null(term: _Term) -> _Term:
    return _Term(pa.bool_(), lambda table: pc.is_null(term.of(table)))


def _compared(how: str, left: _Term, right: _Term) -> _Term:
    kind = _common(left, right)
    if pa.types.is_floating(kind):
        ways = _FLOATS
    elif any(test(kind) for test in _ORDERED):
        ways = _OTHERS
    else:
        raise Unknown(f"a comparison of {kind}")
    a, b = _cast(left, kind), _cast(right, kind)
    if how == "same":
        return _Term(pa.bool_(), lambda table: _same(ways["eq"], a(table), b(table)))
    return _Term(pa.bool_(), lambda table: ways[how](a(table), b(table)))


_ORDERED = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_boolean,
)


def _common(left: _Term, right: _Term) -> pa.DataType:
    """The type in which Spark compares the two. Raises Unknown if there is none, or settings decide."""
    a, b = left.kind, right.kind
    if a == b:
        return a
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return pa.int64()
    for one, other in ((left, right), (right, left)):
        if pa.types.is_floating(one.kind) and _fits_double(one, other):
            return pa.float64()
        if pa.types.is_date(one.kind) and isinstance(other.literal, str):
            return pa.date32()
    if all(pa.types.is_decimal(each) or pa.types.is_integer(each) for each in (a, b)):
        whole = max(_digits(left) - _scale(a), _digits(right) - _scale(b))
        scale = max(_scale(a), _scale(b))
        if whole + scale <= _MOST_DIGITS:
            return pa.decimal128(whole + scale, scale)
    raise Unknown(f"a comparison of {a} and {b}")


def _fits_double(one: _Term, other: _Term) -> bool:
    if pa.types.is_floating(other.kind):
        return True
    if isinstance(other.literal, int) and not isinstance(other.literal, bool):
        return abs(other.literal) <= _EXACT
    if isinstance(other.literal, Decimal):
        return True
    return bool(pa.types.is_integer(other.kind) and pa.types.is_float64(one.kind))


def _digits(term: _Term) -> int:
    return int(term.kind.precision) if pa.types.is_decimal(term.kind) else 19


def _scale(kind: pa.DataType) -> int:
    return int(kind.scale) if pa.types.is_decimal(kind) else 0


def _cast(term: _Term, kind: pa.DataType) -> Callable[[pa.Table], Values]:
    if term.kind == kind:
        return term.of
    if isinstance(term.literal, Decimal) and pa.types.is_floating(kind):
        return _literal(float(term.literal), kind).of
    if isinstance(term.literal, str):
        return _date(term.literal).of
    # BIGINT as DOUBLE loses digits, as in Spark; decimals fit, by the type that was chosen.
    return lambda table: pc.cast(term.of(table), kind, safe=False)


def _float_less(a: Values, b: Values) -> Values:
    """As Spark has it: NaN is greater than any other number, and equal to itself."""
    return pc.or_kleene(pc.less(a, b), pc.and_kleene(pc.is_nan(b), pc.invert(pc.is_nan(a))))


def _float_equal(a: Values, b: Values) -> Values:
    return pc.or_kleene(pc.equal(a, b), pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))


_FLOATS: dict[str, Callable[[Values, Values], Values]] = {
    "eq": _float_equal,
    "ne": lambda a, b: pc.invert(_float_equal(a, b)),
    "lt": _float_less,
    "gt": lambda a, b: _float_less(b, a),
    "le": lambda a, b: pc.invert(_float_less(b, a)),
    "ge": lambda a, b: pc.invert(_float_less(a, b)),
}
_OTHERS: dict[str, Callable[[Values, Values], Values]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "gt": pc.greater,
    "le": pc.less_equal,
    "ge": pc.greater_equal,
}


def _same(equal: Callable[[Values, Values], Values], a: Values, b: Values) -> Values:
    """``<=>``: equal, or both null; never null itself."""
    either = pc.fill_null(equal(a, b), False)
    return pc.or_(either, pc.and_(pc.is_null(a), pc.is_null(b)))
