"""As much of Prometheus's query language, and of promtool's unit tests for rules, as the rules in docs/monitoring use.

Understood are selectors with ``=``, ``!=`` and ``=~``, ``rate`` and ``increase`` over a range, ``sum``, ``max``,
``min`` and ``count`` with ``by``, the operators ``* / + -`` and comparisons that filter. Anything else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]
Series = Mapping[Labels, Sequence[float | None]]
"""Samples, one per minute, by labels; the name is the label ``__name__``."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<duration>\[\d+[smhd]\])|(?P<name>[a-zA-Z_:][\w:]*)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")|(?P<op>==|!=|>=|<=|=~|[-+*/(){},=<>]))'
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": eq, "!=": ne, ">": gt, "<": lt, ">=": ge, "<=": le,
}  # fmt: skip
_ARITHMETIC: Sequence[Mapping[str, Callable[[float, float], float]]] = (
    {"+": add, "-": sub},
    {"*": mul, "/": truediv},
)
_AGGREGATE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": len,
}


def metrics_in(expression: str) -> set[str]:
    """The names of metrics that an expression reads."""
    return set(re.findall(r"\b((?:kafka|ottla|process)_\w+|up)\b", re.sub(r'"[^"]*"', "", expression)))


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, position = [], 0
    expression = expression.strip()
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise ValueError(f"not understood: {expression[position:]!r}")
        position = match.end()
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
    return found


class Query:
    """One expression, evaluated at a minute."""

    def __init__(self, expression: str, series: Series, minute: int) -> None:
        self._tokens = _tokens(expression)
        self._at = 0
        self._series = series
        self._minute = minute

    def value(self) -> Vector:
        found = self._comparison()
        if self._at != len(self._tokens):
            raise ValueError(f"not understood: {self._tokens[self._at :]}")
        assert isinstance(found, dict)
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str | None = None) -> str:
        text = self._peek()
        if not text or (wanted is not None and text != wanted):
            raise ValueError(f"expected {wanted}, found {text!r}")
        self._at += 1
        return text

    def _comparison(self) -> Vector | float:
        left = self._arithmetic(0)
        if self._peek() in _COMPARE:
            holds = _COMPARE[self._take()]
            right = self._arithmetic(0)
            assert isinstance(left, dict)
            return {
                labels: value
                for labels, value in left.items()
                if (other := right.get(labels) if isinstance(right, dict) else right) is not None
                and holds(value, other)
            }
        return left

    def _arithmetic(self, level: int) -> Vector | float:
        if level == len(_ARITHMETIC):
            return self._primary()
        left = self._arithmetic(level + 1)
        while self._peek() in _ARITHMETIC[level]:
            operation = _ARITHMETIC[level][self._take()]
            left = _combine(operation, left, self._arithmetic(level + 1))
        return left

    def _primary(self) -> Vector | float:
        kind, text = self._tokens[self._at]
        if kind == "number":
            self._at += 1
            return float(text)
        if text == "(":
            self._take("(")
            inner = self._comparison()
            self._take(")")
            return inner
        if text in _AGGREGATE:
            return self._aggregate()
        if text in ("rate", "increase"):
            return self._growth()
        return self._instant(self._selector())

    def _aggregate(self) -> Vector:
        function = _AGGREGATE[self._take()]
        by = self._labels() if self._peek() == "by" else ()
        self._take("(")
        inner = self._comparison()
        self._take(")")
        assert isinstance(inner, dict)
        groups: dict[Labels, list[float]] = {}
        for labels, value in inner.items():
            groups.setdefault(tuple(pair for pair in labels if pair[0] in by), []).append(value)
        return {labels: function(values) for labels, values in groups.items()}

    def _labels(self) -> tuple[str, ...]:
        self._take("by")
        self._take("(")
        names = [self._take()]
        while self._peek() == ",":
            self._take(",")
            names.append(self._take())
        self._take(")")
        return tuple(names)

    def _growth(self) -> Vector:
        function = self._take()
        self._take("(")
        matching = self._selector()
        duration = self._take()
        self._take(")")
        seconds = int(duration[1:-2]) * _SECONDS[duration[-2]]
        found = {}
        for labels, samples in matching.items():
            first = max(0, self._minute - seconds // 60)
            window = [each for each in samples[first : self._minute + 1] if each is not None]
            if len(window) < 2:
                continue
            grown = sum(after - before if after >= before else after for before, after in pairwise(window))
            # Extrapolated to the whole range, as Prometheus does where samples begin near its start.
            grown *= seconds / 60 / (len(window) - 1) if len(window) - 1 >= seconds / 60 - 1 else 1
            found[_nameless(labels)] = grown / (seconds if function == "rate" else 1)
        return found

    def _instant(self, matching: Series) -> Vector:
        found = {}
        for labels, samples in matching.items():
            # A sample counts for five minutes.
            recent = [
                each for each in samples[max(0, self._minute - 4) : self._minute + 1] if each is not None
            ]
            if recent:
                found[_nameless(labels)] = recent[-1]
        return found

    def _selector(self) -> Series:
        tests: list[Callable[[Mapping[str, str]], bool]] = []
        name = self._take()
        if self._peek() == "{":
            self._take("{")
            while self._peek() != "}":
                tests.append(self._matcher())
                if self._peek() == ",":
                    self._take(",")
            self._take("}")
        return {
            labels: samples
            for labels, samples in self._series.items()
            if (given := dict(labels))["__name__"] == name and all(test(given) for test in tests)
        }

    def _matcher(self) -> Callable[[Mapping[str, str]], bool]:
        label, operator, quoted = self._take(), self._take(), self._take()
        text = quoted[1:-1]
        if operator == "=~":
            return lambda given: re.fullmatch(text, given.get(label, "")) is not None
        wanted = {"=": True, "!=": False}[operator]
        return lambda given: (given.get(label, "") == text) is wanted


def _nameless(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] != "__name__")


def _combine(
    operation: Callable[[float, float], float], left: Vector | float, right: Vector | float
) -> Vector | float:
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: operation(value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict):
        assert not isinstance(right, dict)
        return {labels: operation(value, right) for labels, value in left.items()}
    if isinstance(right, dict):
        return {labels: operation(left, value) for labels, value in right.items()}
    return operation(left, right)


def parse_series(name: str, values: str) -> tuple[Labels, list[float | None]]:
    """promtool's ``input_series``: ``up{job="x"}`` and ``1+2x10 _x3 5``."""
    match = re.fullmatch(r"(\w+)(?:\{(.*)\})?", name)
    assert match is not None, name
    labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
    samples: list[float | None] = []
    for part in values.split():
        found = re.fullmatch(r"(_|-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", part)
        assert found is not None, part
        count = int(found[3] or 0)
        if found[1] == "_":
            samples += [None] * max(1, count)
        else:
            samples += [float(found[1]) + step * float(found[2] or 0) for step in range(count + 1)]
    return tuple(sorted({**labels, "__name__": match[1]}.items())), samples


def fires(rule: Mapping[str, Any], series: Series, minute: int) -> int:
    """How many alerts of a rule fire at this minute; it is evaluated at each minute up to it."""
    hold = rule.get("for", "0m")
    held = int(hold[:-1]) * _SECONDS[hold[-1]] / 60
    since: dict[Labels, int] = {}
    for now in range(minute + 1):
        active = Query(rule["expr"], series, now).value()
        since = {labels: since.get(labels, now) for labels in active}
    return sum(minute - start >= held for start in since.values())
