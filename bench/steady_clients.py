"""Twenty clients that behave: ``python -m bench.steady_clients ADDRESS TOPIC CLIENTS SECONDS``.

Each sends a record of 100 B every 50 ms with acks=all. Prints the times until they are acknowledged, in ms, as a line
of JSON. They are in a process of their own, so that no other load is in the times.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from time import perf_counter

from bench.load import payloads
from ottla_client import Producer

_EVERY_SECONDS = 0.05


def run(address: str, topic: str, clients: int, seconds: float) -> list[float]:
    """Run the clients in their own process; returns the sorted times. Raises RuntimeError if a record fails."""
    command = [sys.executable, "-m", "bench.steady_clients", address, topic, str(clients), str(seconds)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the clients failed:\n{done.stderr[-2000:]}")
    return sorted(json.loads(done.stdout.splitlines()[-1]))


async def _client(address: str, topic: str, number: int, clients: int, seconds: float) -> list[float]:
    value = payloads(100, 1)[0]
    taken = []
    async with Producer(address, client_id=f"good-{number}", acks="all", linger_ms=0) as producer:
        await producer.send_and_wait(topic, value, partition=0)
        # Not all at the same moment.
        await asyncio.sleep(_EVERY_SECONDS * number / clients)
        end = perf_counter() + seconds
        while (sent := perf_counter()) < end:
            await producer.send_and_wait(topic, value, partition=0)
            taken.append((perf_counter() - sent) * 1000)
            await asyncio.sleep(max(0.0, sent + _EVERY_SECONDS - perf_counter()))
    return taken


async def _all(address: str, topic: str, clients: int, seconds: float) -> list[float]:
    found = await asyncio.gather(
        *(_client(address, topic, number, clients, seconds) for number in range(clients))
    )
    return [each for taken in found for each in taken]


def main() -> None:
    address, topic, clients, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_all(address, topic, int(clients), float(seconds)))))


if __name__ == "__main__":
    main()
