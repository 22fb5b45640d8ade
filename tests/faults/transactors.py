"""Random transactions during faults: processes with producers, whose requests come late, and readers."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka as ck
from harness import maven
from harness.java import QUICK, Unavailable, find_java
from tests.faults.exactly_once import Ledger
from tests.faults.load import EAGER
from tests.support.late_frames import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Held,
    How,
    LateFrames,
)
from tests.support.waiting import wait_for

TOPIC = "transactions"
PARTITIONS = 6
_PROGRAM = Path(__file__).with_name("transact.py")
_JAVA_PROGRAM = Path(__file__).parents[1] / "interop" / "programs" / "Transactions.java"
_JAVA = {"j": maven.KAFKA_VERSION, "k": maven.NEWEST_CLIENTS}
_LATE = {PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT}
_LATENESS = (0.02, 0.1, 0.3, 1.0, 3.0, 8.0)
_END_SECONDS = 300
"""Longer than the clients wait for their own steps."""


class Trace:
    """Writes what passes networks to a file: for each frame its time, connection, kind and length before it."""

    HEAD = struct.Struct(">dI5sI")

    def __init__(self, path: Path, networks: Sequence[LateFrames]) -> None:
        self.path = path
        self._file = path.open("wb")
        self._lock = threading.Lock()
        for network in networks:
            network.holds.trace = self._note

    def _note(self, connection: int, kind: str, frame: bytes) -> None:
        head = self.HEAD.pack(time.time(), connection, kind.encode(), len(frame))
        with self._lock:
            if not self._file.closed:
                self._file.write(head + frame)

    def close(self) -> None:
        with self._lock:
            self._file.close()


class Delays:
    """Lets requests of transactional clients come late at random: the share ``rate`` of them."""

    def __init__(self, networks: Sequence[LateFrames], seed: int, rate: float, trace: Trace) -> None:
        self.trace = trace
        self._networks = networks
        self._chance = random.Random(seed)
        self._rate = rate
        self._calm = threading.Event()
        self._lock = threading.Lock()
        self._due: list[tuple[float, int, Held]] = []
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="late requests", daemon=True)
        for network in networks:
            network.holds.chance = self._choose

    def start(self) -> None:
        self._thread.start()

    def calm(self) -> None:
        """Delay nothing from now on; what is held comes at once."""
        self._calm.set()
        self._thread.join(120)

    def _choose(self, api_key: int, client: str) -> Held | None:
        """In threads of the networks."""
        if api_key not in _LATE or not client.startswith("tx-") or self._calm.is_set():
            return None
        with self._lock:
            if self._chance.random() >= self._rate:
                return None
            how = self._chance.choice(list(How))
            held = Held(api_key, how, client, 0)
            self.counts[how.name.lower()] += 1
            if how is not How.LOSE:
                due = time.monotonic() + self._chance.choice(_LATENESS)
                heapq.heappush(self._due, (due, next(self._numbers), held))
            return held

    def _run(self) -> None:
        next_cut = time.monotonic()
        while not self._calm.is_set() or self._due:
            now = time.monotonic()
            with self._lock:
                held = None
                if self._due and (self._due[0][0] < now or self._calm.is_set()):
                    _, _, held = heapq.heappop(self._due)
            if held is not None:
                self._let_go(held)
                continue
            if now > next_cut and not self._calm.is_set():
                self.counts["connections cut"] += self._chance.choice(self._networks).cut()
                next_cut = now + self._chance.uniform(5, 30)
            time.sleep(0.01)

    def _let_go(self, held: Held) -> None:
        # The broker may have been killed meanwhile, or be frozen.
        with contextlib.suppress(OSError, AssertionError):
            if not held.has_come:
                return
            if held.how is How.STALL and self._chance.random() < 0.7:
                held.release()
                return
            self.counts["late"] += 1
            answers = held.deliver(5)
            self.counts["late and answered"] += len(answers)


class CommittedReader(threading.Thread):
    """Reads what is committed, from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.seen: dict[int, list[tuple[int, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
        self._consumer = committed_reader(bootstrap)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, 0.3):
                if message.error() is None:
                    self.seen[message.partition() or 0].append((message.offset() or 0, message.value()))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


class Transactors:
    """The processes. ``tens``: how many ids of each kind there are, as a multiple of the smallest run's."""

    def __init__(self, folder: Path, address: str, bootstrap: str, seed: int, scale: int) -> None:
        self._folder, self._address, self._bootstrap = folder, address, bootstrap
        self._seed, self._scale = seed, scale
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers = [CommittedReader(bootstrap) for _ in range(2)]

    def start(self) -> None:
        common = [self._address, TOPIC, str(PARTITIONS)]
        python = [
            sys.executable,
            "-X",
            "faulthandler",
            str(_PROGRAM),
            *common,
            str(self._seed),
            str(3 * self._scale),
            str(self._scale),
        ]
        self._begin("confluent", python)
        for letter, version in _JAVA.items():
            try:
                libs = maven.client_jars(version)
            except Unavailable as lack:
                print(f"without Java's {version}: {lack}", flush=True)
                continue
            # Compiled when it starts, which takes it a second.
            java = [find_java(), "-Xmx256M", *QUICK, "-cp", f"{libs}/*", str(_JAVA_PROGRAM)]
            self._begin(version, [*java, *common, str(self._seed), str(self._scale), letter])
        for reader in self._readers:
            reader.start()

    def _begin(self, name: str, command: list[str]) -> None:
        with (self._journal(name)).open("wb") as journal, (self._folder / f"{name}.err").open("wb") as errors:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=journal, stderr=errors, cwd=Path(__file__).parents[2]
            )

    def _journal(self, name: str) -> Path:
        return self._folder / f"{name}.journal"

    def _errors(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text()[-4000:]

    def check_alive(self) -> None:
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} has ended: {self._errors(name)}"

    def acknowledged(self) -> int:
        """How many transactions clients say are committed."""
        return sum(self._journal(name).read_bytes().count(b" commit\n") for name in self._processes)

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def finish(self) -> Ledger:
        """Let the clients come to an end, and read everything."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for name, process in self._processes.items():
            try:
                code = process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # what its threads are doing
                process.wait(30)
                errors = [
                    each for each in self._journal(name).read_text().splitlines() if each.startswith("error")
                ]
                raise AssertionError(
                    f"{name} has not come to its end: {errors[-5:]}\n{self._errors(name)}"
                ) from None
            assert code == 0, (name, self._errors(name))
        ledger = Ledger()
        for name in self._processes:
            for line in self._journal(name).read_text().splitlines():
                ledger.add(line)
        ledger.hidden = self._hidden()
        ledger.log = _read(self._bootstrap)
        for reader in self._readers:
            reader.stop()
            ledger.seen.append(reader.seen)
        for name in {each.name for each in ledger.ended}:
            group = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": name, **EAGER})
            [place] = group.committed([ck.TopicPartition(TOPIC, 0)], 60)
            ledger.committed[name] = max(place.offset, -1)
            group.close()
        return ledger

    def _hidden(self) -> dict[int, tuple[int, int]]:
        """What no reader of committed records gets, once the last transactions have had time to end."""
        hidden: dict[int, tuple[int, int]] = {}
        stable, plain = (
            committed_reader(self._bootstrap, level) for level in ("read_committed", "read_uncommitted")
        )

        def settled() -> bool:
            hidden.clear()
            try:
                for partition in range(PARTITIONS):
                    place = ck.TopicPartition(TOPIC, partition)
                    _, at = stable.get_watermark_offsets(place, 10)
                    _, high = plain.get_watermark_offsets(place, 10)
                    if at < high:
                        hidden[partition] = (at, high)
            except ck.KafkaException:
                return False  # a leader that moves
            return not hidden

        with contextlib.suppress(AssertionError):
            wait_for(settled, "the last transactions to end", 90, 0.5)
        stable.close()
        plain.close()
        return hidden


def committed_reader(bootstrap: str, level: str = "read_committed") -> ck.Consumer:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no group",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": level,
            **EAGER,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    return consumer


def _read(bootstrap: str, timeout: float = 300.0) -> dict[int, list[tuple[int, bytes | None]]]:
    consumer = committed_reader(bootstrap)
    found: dict[int, list[tuple[int, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int | None] = set()
    deadline = time.monotonic() + timeout
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{TOPIC} was not read to its end"
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                found[message.partition() or 0].append((message.offset() or 0, message.value()))
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found
