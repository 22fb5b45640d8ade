"""Client libraries on the same broker, 100 B, uncompressed, four partitions: records per second in and out.

``bench.clients`` has the jobs. Slow libraries get fewer records. Clients alternate on each broker and brokers with
each client, and both brokers are warm.
"""

from __future__ import annotations

from bench import clients, load
from bench.context import Bench
from bench.measures.cpu import warm_up

_SLOW = {"kafka-python": 5, "aiokafka": 2}


def _records(name: str, most: int) -> int:
    return most // _SLOW.get(name.split()[0], 1)


def measure(bench: Bench) -> None:
    records = bench.scaled(1_000_000, 200_000)
    with bench.all_up() as brokers:
        for broker in brokers:
            warm_up(bench, broker, bench.scaled(4_000_000, 200_000))
        for _ in range(bench.repeats):
            for name in clients.PRODUCE:
                for broker in brokers:
                    topic = bench.topic(broker)
                    done = clients.run(name, clients.Job(broker.address, topic, _records(name, records)))
                    bench.add("client", f"produce, {name}", "rec/s", "higher", broker, done.rate)
                    bench.drop(broker, topic)
            full = {broker.name: bench.topic(broker) for broker in brokers}
            for broker in brokers:
                load.run(load.Job("produce", broker.address, full[broker.name], records))
            for name in clients.CONSUME:
                for broker in brokers:
                    job = clients.Job(broker.address, full[broker.name], _records(name, records))
                    done = clients.run(name, job)
                    bench.add("client", f"consume, {name}", "rec/s", "higher", broker, done.rate)
            for broker in brokers:
                bench.drop(broker, full[broker.name])
