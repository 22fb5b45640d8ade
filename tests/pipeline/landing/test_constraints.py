"""What a table demands of its rows is evaluated exactly as Spark does, or refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla_pipeline.landing.constraints import Check, Constraints
from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.expressions import Unknown, compiled
from ottla_pipeline.landing.schema import to_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("st", pa.struct([("x", pa.int32()), ("b.c", pa.string())])),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("dec", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
    ]
)
WHEN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS: list[dict[str, Any]] = [
    {},
    {"a": 1, "n": 1, "f": 0.1, "d": 0.1, "s": "abc", "st": {"x": 1, "b.c": "q"}, "ok": True},
    {
        "a": 5,
        "n": 2**53 + 1,
        "f": 0.5,
        "d": float(2**53),
        "s": "a\nb",
        "st": {"x": None, "b.c": "z"},
        "ok": False,
    },
    {"a": -3, "n": -(2**63), "f": float("nan"), "d": float("nan"), "s": "é", "day": dt.date(2026, 1, 1)},
    {"a": 0, "n": 0, "f": -0.0, "d": -0.0, "s": "", "ts": WHEN, "dec": Decimal("0.50")},
    {"a": 2**31 - 1, "d": float("inf"), "s": "a%b_", "day": dt.date(2025, 12, 31), "dec": Decimal("-1.25")},
    {
        "a": 3,
        "n": 5,
        "d": 5.0,
        "s": "A",
        "ts": WHEN + dt.timedelta(microseconds=1),
        "dec": Decimal(1),
        "st": {"x": 7},
    },
]
CONDITIONS = [
    *(
        "a > 0",
        "a>0 and d < 100",
        "A = 5 OR s = 'abc'",
        "NOT a = 5",
        "not (a = 5 or a is null)",
        "a <> 3",
        "a != 4",
    ),
    *(
        "a <=> 5",
        "s <=> 'é'",
        "d <=> 0.0",
        "a > - 1",
        "`a` >= 0",
        "a == 3",
        "1 < a",
        "true",
        "ok",
        "not ok",
        "ok = false",
    ),
    *("a in (1,2, 5)", "a not in (1)", "s in ('abc', '')", "a between 1 and 4", "a not between 1 and 4"),
    *(
        "a is null",
        "st is not null",
        "st.x is null",
        "st.x > 1",
        "st.`b.c` = 'q'",
        "length(s) <= 2",
        "char_length(s) = 1",
    ),
    *("s like 'a%b'", "s not like '_'", "s like 'a.b'", "s like ''", "s < 'b'", "s >= 'A'"),
    *(
        "d > 0.5",
        "d >= 0",
        "d = 0",
        "d > 1e3",
        "d < a",
        "d = n",
        "f > 0.1",
        "f = 0.5",
        "f >= 0",
        "d <= 9007199254740992.0",
    ),
    *(
        "n = a",
        "n > 9007199254740992",
        "n < 0.5",
        "a > 0.5",
        "dec > 0.5",
        "dec = 1",
        "dec <= a",
        "dec between -2 and 0.5",
    ),
    *(
        "day >= '2026-01-01'",
        "day = date'2026-01-01'",
        "ts > timestamp'2026-01-01 00:00:00Z'",
        "day < DATE '2026-01-01'",
    ),
    *("a > 0 and n > 0 or ok", "(a > 0) and (n > 0 or ok)", "not a > 0 and ok", 's = "abc"'),
]


def table(rows: list[dict[str, Any]] = ROWS, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def test_conditions_have_the_outcome_that_they_have_in_spark(spark: SparkSession) -> None:
    rows = [tuple(row.get(one.name) for one in SCHEMA) for row in ROWS]
    kept = [
        tuple(tuple(v.values()) if isinstance(v, dict) and len(v) == 2 else v for v in row) for row in rows
    ]
    kept = [tuple((v["x"], None) if isinstance(v, dict) else v for v in row) for row in kept]
    frame = spark.createDataFrame(kept, to_ddl(SCHEMA))
    wanted = frame.selectExpr(*(f"({text}) as c{at}" for at, text in enumerate(CONDITIONS))).collect()
    data = table()
    for at, text in enumerate(CONDITIONS):
        found = compiled(text, SCHEMA)(data)
        values = [found.as_py()] * len(ROWS) if isinstance(found, pa.Scalar) else found.to_pylist()
        assert values == [row[at] for row in wanted], text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a + 1 > 0", "+"),
        ("a % 2 = 0", "%"),
        ("s rlike 'x'", "rlike"),
        ("cast(a as string) = '1'", r"cast\(\)"),
        ("s = 'it' 's'", "'s'"),
        (r"s = 'a\'b'", "'a"),
        ("upper(s) = 'A'", r"upper\(\)"),
        ("missing > 1", "missing"),
        ("a > '1'", "int32 and string"),
        ("ts > '2026-01-01'", "timestamp"),
        ("ts > timestamp'2026-01-01 00:00:00'", "no time zone"),
        ("day > date'2026-02-30'", "2026-02-30"),
        ("a", "as a condition"),
        ("(a > 1", r"no \)"),
        ("a >", "the end"),
        ("a > null", "null"),
        ("n > 99999999999999999999", "9999"),
        ("f = a", "float and int32"),
        ("st = st", "comparison"),
        ("(" * 5000 + "a > 1" + ")" * 5000, "nested"),
        ("not " * 100 + "a > 1", "nested"),
        (f"s like '{'%a' * 1000}'", "1,000 characters"),
        ("a > 1." + "1" * 60, "1111"),
        ("f > 1e999", "1e999"),
        ("a > \N{FULLWIDTH DIGIT TWO}", "\N{FULLWIDTH DIGIT TWO}"),
        ("ts > timestamp'9999-12-31 23:59:59-18:00'", "out of range"),
        ("s = '\ud800'", "surrogates"),
    ],
)
def test_a_condition_that_only_spark_can_evaluate_is_refused_by_its_part(text: str, what: str) -> None:
    with pytest.raises(Unknown, match=what.replace("+", r"\+")):
        compiled(text, SCHEMA)
    with pytest.raises(SchemaRefused, match=r"lake/t has the CHECK constraint c \("):
        Constraints("lake/t", SCHEMA, [Check("CHECK constraint c", text)])


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (" or ".join(f"a = {n}" for n in range(3000)), "a between 0 and 2999"),
        (" and ".join(f"a <> {n}" for n in range(3000)), "not a between 0 and 2999"),
        (f"a in ({', '.join(map(str, range(3000)))})", "a between 0 and 2999"),
    ],
)
def test_a_condition_may_be_long(text: str, short: str) -> None:
    assert compiled(text, SCHEMA)(table()).to_pylist() == compiled(short, SCHEMA)(table()).to_pylist()


def test_a_check_is_met_by_true_alone() -> None:
    found = Constraints("t", SCHEMA, [Check("CHECK constraint positive", "a > 0")]).broken(table())
    assert sorted(found) == [0, 3, 4], "null isn't true"
    assert found[3] == "the CHECK constraint positive of the table isn't met: a > 0"


def test_not_null_holds_at_every_depth() -> None:
    inner = pa.struct(
        [pa.field("x", pa.int32(), False), pa.field("l", pa.list_(pa.field("element", pa.int8(), False)))]
    )
    exact = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("st", inner),
            pa.field("m", pa.map_(pa.string(), pa.field("value", inner, False))),
        ]
    )
    loose = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int8()))])
    rows: list[dict[str, Any]] = [
        {"id": 1, "st": {"x": 1, "l": [1]}, "m": [("k", {"x": 1, "l": []})]},
        {"id": None},
        {"id": 2, "st": {"x": None, "l": None}},
        {"id": 3, "st": {"x": 1, "l": [1, None]}},
        {"id": 4, "m": [("k", None)]},
        {"id": 5, "m": [("a", {"x": 1}), ("k", {"x": 1, "l": [None]})]},
        {"id": 6, "st": None, "m": None},
    ]
    data = table(rows, pa.schema([("id", pa.int64()), ("st", loose), ("m", pa.map_(pa.string(), loose))]))
    constraints = Constraints("t", exact, [])
    for found in (data, pa.concat_tables([data.slice(0, 3), data.slice(3)])):
        assert sorted(constraints.broken(found)) == [1, 2, 3, 4, 5]
    assert sorted(constraints.broken(data.slice(2, 3))) == [0, 1, 2]
    assert constraints.broken(data)[1] == "id is null, and the table says NOT NULL"
    assert not Constraints("t", data.schema, [])
