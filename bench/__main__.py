"""``python -m bench``: runs measurements, prints ratios and bars, and writes JSON to ``bench/results/``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from harness import maven
from harness.brokers import Broker, Kafka, Ottla
from harness.java import Unavailable

from bench.context import Bench
from bench.measures import MEASURES
from bench.results import report

RESULTS = Path(__file__).resolve().parent / "results"
_KINDS: dict[str, type[Broker]] = {"ottla": Ottla, "kafka": Kafka}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help=f"run only these measurements, separated by commas: {', '.join(MEASURES)}",
    )
    parser.add_argument(
        "--brokers",
        metavar="NAMES",
        default="ottla,kafka",
        help="run only these brokers, separated by commas (ottla,kafka)",
    )
    parser.add_argument("--quick", action="store_true", help="use small loads, to check the harness")
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="take each figure this many times (3; quick: 1)"
    )
    parser.add_argument(
        "--folder", type=Path, help="put the brokers' folders here (default: a temporary folder)"
    )
    parsed = parser.parse_args()
    parsed.only = parsed.only.split(",") if parsed.only else list(MEASURES)
    parsed.brokers = parsed.brokers.split(",")
    for name in parsed.only:
        if name not in MEASURES:
            parser.error(f"--only: there is no measurement {name!r}; there are: {', '.join(MEASURES)}")
    for name in parsed.brokers:
        if name not in _KINDS:
            parser.error(f"--brokers: there is no broker {name!r}; there are: {', '.join(_KINDS)}")
    return parsed


def main() -> int:
    """Return 0 if every measurement succeeded, else 1. Missed bars don't count."""
    arguments = _arguments()
    # Installed packages are compiled, so compile the sources here too, whatever the environment says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kinds = [_KINDS[name] for name in arguments.brokers]
    java = True
    if Kafka in kinds or {"java", "latency"} & set(arguments.only):
        try:
            maven.kafka_jars()
        except Unavailable as lack:
            java = False
            print(f"leaving out Apache Kafka {maven.KAFKA_VERSION} and its tools: {lack}")
            kinds = [kind for kind in kinds if kind is not Kafka]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.folder) as folder:
        repeats = arguments.repeats or (1 if arguments.quick else 3)
        bench = Bench(kinds, Path(folder), arguments.quick, repeats)
        for name in arguments.only:
            if name == "java" and not java:
                continue
            title, measure = MEASURES[name]
            print(f"{name}: {title}", flush=True)
            try:
                measure(bench)
            except Exception as failure:
                bench.results.failures.append(f"{name}: {failure}")
                print(f"  {name} failed: {failure}", file=sys.stderr, flush=True)
    print(f"\n{report(bench.results, [kind.name for kind in kinds])}")
    options = {
        "quick": arguments.quick,
        "repeats": repeats,
        "measures": arguments.only,
        "brokers": arguments.brokers,
    }
    path = bench.results.write(RESULTS, options)
    print(f"\n{time.monotonic() - began:.0f} s; written to {path}")
    for failed in bench.results.failures:
        print(f"failed: {failed.splitlines()[0]}", file=sys.stderr)
    return 1 if bench.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
