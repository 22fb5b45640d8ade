"""One record of 100 B at a time, acks=all, no linger: time until it is acknowledged, and until a consumer has it.

Clients take turns of a hundred trips, so that other load, and the warmth of brokers and code, affect all alike.
Percentiles are of a thousand trips each, and their median counts: a 99th percentile while the machine was busy
elsewhere says nothing about a client.
"""

from __future__ import annotations

from bench import rounds
from bench.clients import Job
from bench.context import Bench
from bench.measures.latency import add_percentiles

TURN = 100


def measure(bench: Bench) -> None:
    trips = bench.scaled(1000, 500)
    with bench.all_up() as brokers:
        for broker in brokers:
            for names in rounds.COMPARED:
                jobs = {name: Job(broker.address, bench.topic(broker, 1), 0, partitions=1) for name in names}
                with rounds.travellers(jobs, bench.folder) as there:
                    for name in names:
                        there[name].take(bench.scaled(1000, 200))
                    for _ in range(bench.scaled(5 * bench.repeats, 1)):
                        taken: dict[str, list[float]] = {name: [] for name in names}
                        for turn in range(trips // TURN):
                            for name in names if turn % 2 else reversed(names):
                                taken[name] += there[name].take(TURN)
                        for name in names:
                            add_percentiles(bench, "round", f"{name}: p%", broker, sorted(taken[name]))
                for job in jobs.values():
                    bench.drop(broker, job.topic)
