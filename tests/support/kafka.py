"""Apache Kafka, 3.9.1 or 4.x, in the place of the broker under test, so that the tests can be held against it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from bench import maven
from bench.brokers import Kafka

# Kafka does not have these keys of its own accord as one broker wants them.
_ONE_BROKER = {"offsets.topic.replication.factor": "1"}


class KafkaProcess:
    """The same handles as :class:`tests.support.processes.BrokerProcess`, as far as tests need them."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        port: int | None = None,
        version: str = maven.KAFKA_VERSION,
    ) -> None:
        self.folder = folder
        # Kafka 4 has no segments under 1 MiB but by this name (KIP-1030), which is for tests.
        self.other_names = {} if version.startswith("3.") else {"segment.bytes": "internal.segment.bytes"}
        self.settings = dict(settings or {})
        given = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.settings.items()
        }
        self._broker = Kafka(folder, {**_ONE_BROKER, **given}, port, version)
        self.port = self._broker.port

    @property
    def bootstrap(self) -> str:
        return self._broker.address

    @property
    def pid(self) -> int:
        return self._broker.pid

    def start(self, timeout: float = 60.0) -> KafkaProcess:
        self._broker.start(timeout)
        return self

    def stop(self, timeout: float = 60.0, sign: signal.Signals = signal.SIGTERM) -> int:
        self._broker.stop(timeout)
        return 0

    def kill(self) -> None:
        self._broker.kill()

    def log(self) -> str:
        return self._broker.tail(100)

    def complaints(self) -> list[str]:
        """Kafka's own log is not under test."""
        return []
