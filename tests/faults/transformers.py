"""Consume-transform-produce during faults: programs that are killed and frozen, and requests that come late."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka as ck
from tests.faults.exactly_once import Transformed
from tests.faults.load import EAGER
from tests.faults.transform import SESSION_MS, TRANSACTION_TIMEOUT_MS
from tests.support.late_frames import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Held,
    LateFrames,
)
from tests.support.waiting import wait_for

GROUP = "transformers"
TARGET = "transformed"
TARGET_PARTITIONS = 3
KINDS = ("confluent", "ottla", "confluent")
_PROGRAM = Path(__file__).with_name("transform.py")
_LATE = (PRODUCE, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN)
_LIFE_SECONDS = (4.0, 25.0)


class _Slot:
    """A name and its process, which is started again when it has ended."""

    def __init__(self, kind: str, name: str, command: list[str], log: Path) -> None:
        self.kind = kind
        self.name = name
        self.command = command
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.until = 0.0
        self.frozen = False

    def start(self, seed: int) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, str(seed)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )
        self.frozen = False

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Transformers:
    """Keeps transformers running, each until it is killed or frozen; requests of theirs are held back.

    They reach the brokers through ``networks``. Its thread starts and ends them; :meth:`calm` ends the disturbances.
    """

    def __init__(self, folder: Path, networks: Mapping[int, LateFrames], source: str, seed: int) -> None:
        self._networks = list(networks.values())
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._calm = threading.Event()
        self.counts: Counter[str] = Counter()
        bootstrap = ",".join(network.address for network in self._networks)
        self._slots = [
            _Slot(
                kind,
                f"transformer-{number}",
                [
                    sys.executable,
                    str(_PROGRAM),
                    kind,
                    f"transformer-{number}",
                    bootstrap,
                    source,
                    TARGET,
                    str(TARGET_PARTITIONS),
                    GROUP,
                ],
                folder / f"transformer-{number}.log",
            )
            for number, kind in enumerate(KINDS)
        ]
        self._threads = [
            threading.Thread(target=self._run, name="transformers", daemon=True),
            threading.Thread(target=self._delay, name="late requests", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def calm(self) -> None:
        """Kill and delay nothing from now on."""
        self._calm.set()
        self._threads[1].join(60)

    def stop(self) -> None:
        """Kill all."""
        self._calm.set()
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(60)

    def outcomes(self) -> Counter[str]:
        """How many transactions have ended how, as the processes have printed, and how many processes gave up."""
        found: Counter[str] = Counter()
        for slot in self._slots:
            for line in slot.log.read_text(errors="replace").splitlines() if slot.log.exists() else []:
                word = line.split(" ")[0]
                found[f"{slot.kind} {word}" if word in ("commit", "aborted") else f"{slot.kind} gave up"] += 1
        return found

    # Kills

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for slot in self._slots:
                    self._look_after(slot)
                self._stopping.wait(0.1)
        finally:
            for slot in self._slots:
                slot.end()

    def _look_after(self, slot: _Slot) -> None:
        now = time.monotonic()
        process = slot.process
        if process is None or process.poll() is not None:
            slot.start(self._chance.randrange(10**9))
            slot.until = now + self._chance.uniform(*_LIFE_SECONDS)
        elif slot.frozen:
            if now > slot.until or self._calm.is_set():
                process.send_signal(signal.SIGCONT)
                slot.frozen = False
                slot.until = now + self._chance.uniform(*_LIFE_SECONDS)
        elif now > slot.until and not self._calm.is_set():
            if self._chance.random() < 0.5:
                slot.end()
                self.counts["killed"] += 1
            else:
                process.send_signal(signal.SIGSTOP)
                slot.frozen = True
                # Sometimes for longer than its session, or its transaction, lasts.
                slot.until = now + self._chance.choice(
                    (1.0, SESSION_MS / 1000 + 2, TRANSACTION_TIMEOUT_MS / 1000 + 2)
                )
                self.counts["frozen"] += 1

    # Late requests

    def _delay(self) -> None:
        chance = random.Random(self._chance.randrange(10**9))
        while not self._calm.is_set():
            network = chance.choice(self._networks)
            held = network.holds.hold(chance.choice(_LATE))
            come = time.monotonic() + 5
            while not held.has_come and time.monotonic() < come and not self._calm.is_set():
                time.sleep(0.02)
            if not network.holds.forget(held):
                self._calm.wait(chance.choice((0.05, 0.5, 3.0, 12.0)))
                self._deliver(held)
            self._calm.wait(chance.uniform(0.2, 2))

    def _deliver(self, held: Held) -> None:
        # The broker may have been killed meanwhile, or be frozen.
        with contextlib.suppress(OSError, AssertionError):
            answers = held.deliver(10)
            self.counts["late and answered" if answers else "late and refused"] += 1

    # The end

    def finish(
        self, bootstrap: str, source: str, ends: Mapping[int, int], timeout: float = 60.0
    ) -> Transformed:
        """Let them read the source to its end, stop them, and read what they have written.

        They get on within any ``timeout`` seconds.
        """
        places = [ck.TopicPartition(source, partition) for partition in ends]
        consumer = _reader(bootstrap, committed=True)
        committed: dict[int, int] = {}

        def done() -> bool:
            with contextlib.suppress(ck.KafkaException):
                for place in consumer.committed(places, 10):
                    committed[place.partition] = max(place.offset, 0)
            return all(committed.get(partition, 0) >= end for partition, end in ends.items())

        # They may be far behind, but have to get on.
        before = -1
        while not done() and sum(committed.values()) > before:
            before = sum(committed.values())
            with contextlib.suppress(AssertionError):
                wait_for(done, "the transformers to read everything", timeout, 0.2)
        self.stop()
        hidden: dict[int, tuple[int, int]] = {}

        def stable() -> bool:
            """What killed transformers have left open is aborted when its time is up."""
            hidden.clear()
            plain = _reader(bootstrap, committed=False)
            for partition in range(TARGET_PARTITIONS):
                place = ck.TopicPartition(TARGET, partition)
                _, at = consumer.get_watermark_offsets(place, 10)
                _, high = plain.get_watermark_offsets(place, 10)
                if at < high:
                    hidden[partition] = (at, high)
            plain.close()
            return not hidden

        with contextlib.suppress(AssertionError):
            wait_for(stable, "the last transactions to end", 60, 0.5)
        read = _read(consumer)
        consumer.close()
        return Transformed(ends, committed, read, hidden)


def _reader(bootstrap: str, *, committed: bool) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **EAGER,
        }
    )


def _read(consumer: ck.Consumer, timeout: float = 120.0) -> list[bytes | None]:
    consumer.assign([ck.TopicPartition(TARGET, partition, 0) for partition in range(TARGET_PARTITIONS)])
    values: list[bytes | None] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + timeout
    while len(ended) < TARGET_PARTITIONS:
        assert time.monotonic() < deadline, f"{TARGET} was not read to its end"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    return values
