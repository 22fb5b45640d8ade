"""Delivers dead letters to a table or a topic.

Tasks write them to files, and the commit of their batch names these files in its notes, under ``dead``. So a batch and
its dead letters are safe in one step. Then they are delivered and the files deleted; after a crash, the next run does
that first.

* A table of dead letters notes the last delivery, so delivering again does nothing.
* For a topic, the notes say where it ended before. After a crash the next run reads on from there, and sends what is
  missing.
"""

from __future__ import annotations

import posixpath
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_client.errors import ClientError
from ottla_client.sync import Producer
from ottla_pipeline.landing import deadletters
from ottla_pipeline.landing.errors import BadSetting, LandingError
from ottla_pipeline.landing.files import FileWriter
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import Commit, DataFile, Table, open_table
from ottla_pipeline.landing.tables.base import DEAD
from ottla_pipeline.reading import OffsetRange, ReadError, ReadSettings, read
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.kafka import client_options

NOTE = "dead"
"""The key of a commit's note: a token, the files with dead letters, and :meth:`DeadLetterSink.position`."""
_ROWS = 10_000
"""Dead letters that are sent before waiting for their acknowledgements."""

_LARGE = {"max_request_size": 100 << 20, "buffer_memory": 128 << 20}
"""Only the topic and the broker say how large a dead letter may be: requests of 100 MiB are Kafka's default limit."""

Where = tuple[str, int, int]
"""A record's topic, partition and offset."""


class DeadLetterSink(ABC):
    """Delivers the dead letters of one table's batches. One thread's."""

    def __init__(self, table: Table) -> None:
        self._from = table

    def note(self, files: Sequence[DataFile]) -> dict[str, Any]:
        """The note for a commit, by which these dead letters survive a crash."""
        if not files:
            return {NOTE: None}
        return {
            NOTE: {
                "token": uuid.uuid4().hex,
                "files": [one.to_json() for one in files],
                "before": self.position(),
            }
        }

    def deliver_pending(self) -> None:
        """Deliver the dead letters of the table's last commit, unless that was done.

        Raises LandingError if they can't be delivered.
        """
        noted = self._from.state().notes.get(NOTE)
        if not noted:
            return
        files = [one for one in map(DataFile.from_json, noted["files"]) if self._is_there(one)]
        if files:
            self.deliver(files, noted, self.delivered(noted))
            self.discard(files)

    def delivered(self, noted: dict[str, Any]) -> set[Where]:
        """The noted dead letters that were delivered already."""
        return set()

    @abstractmethod
    def position(self) -> Any:
        """The note that :meth:`delivered` needs after a crash, as JSON."""

    @abstractmethod
    def deliver(self, files: Sequence[DataFile], noted: dict[str, Any], delivered: set[Where]) -> None:
        """Deliver the dead letters in these files, except those in ``delivered``."""

    def discard(self, files: Sequence[DataFile]) -> None:
        self._from.delete([one.path for one in files], self._folder)

    def close(self) -> None:
        return

    @property
    def _folder(self) -> str:
        return posixpath.join(self._from.root, DEAD)

    def _path(self, one: DataFile) -> str:
        return posixpath.join(self._folder, one.path)

    def _is_there(self, one: DataFile) -> bool:
        return bool(self._from.fs.get_file_info(self._path(one)).type is pafs.FileType.File)


class TableSink(DeadLetterSink):
    """A table of the landing's own format."""

    def __init__(self, landing: Landing, table: Table) -> None:
        super().__init__(table)
        self.table = dead_table(landing)
        if not self.table.exists():
            self.table.create(deadletters.SCHEMA, ())
        self.table.refresh()
        if not self.table.schema().equals(deadletters.SCHEMA):
            raise BadSetting(f"{self.table.name} is no table of dead letters: its columns are others")

    def position(self) -> Any:
        return None

    def deliver(self, files: Sequence[DataFile], noted: dict[str, Any], delivered: set[Where]) -> None:
        key = f"taken from {self._from.name}"
        self._replace([], files, key, noted["token"])

    def finish_replay(self, name: str) -> None:
        """Replace files of dead letters as a replay's commit says, unless that was done."""
        self._from.refresh()
        noted = self._from.state().notes.get(name)
        if not noted or "token" not in noted:
            return
        key = f"replayed into {self._from.name}"
        self.table.refresh()
        if self.table.state().notes.get(key) == noted["token"]:
            return
        kept = [DataFile.from_json(one) for one in noted["kept"]]
        known = {one.path: one for one in self.table.data_files()}
        gone = [path for path in noted["removed"] if path not in known]
        if gone:
            raise LandingError(
                f"{self.table.name}: {gone[0]} is not in the table any more, and dead letters in it were replayed: "
                "another program has changed it"
            )
        self._replace([known[path] for path in noted["removed"]], kept, key, noted["token"])
        self.discard(kept)

    def _replace(self, removed: Sequence[DataFile], files: Sequence[DataFile], key: str, token: str) -> None:
        """Bring the rows of ``files`` into the table, in files of its own layout."""
        self.table.refresh()
        if self.table.state().notes.get(key) == token:
            return
        layout = self.table.layout()
        writer = FileWriter(*self.table.staging.open(), layout, deadletters.FILES, "dead")
        try:
            for one in files:
                with self._from.fs.open_input_file(self._path(one)) as source:
                    for batch in pq.ParquetFile(source).iter_batches(_ROWS):
                        writer.write(pa.Table.from_batches([batch]).cast(deadletters.SCHEMA))
            made = writer.close()
        except BaseException:
            writer.abort()
            raise
        self.table.commit(
            Commit(
                files=made, removed=removed, layout=layout.version, notes={key: token}, unless=(key, token)
            )
        )


class TopicSink(DeadLetterSink):
    """An existing topic."""

    def __init__(self, landing: Landing, table: Table) -> None:
        super().__init__(table)
        self._servers, self._client = landing.bootstrap_servers, landing.client
        self._topic = (landing.dead_letters or "").partition(":")[2]
        self._producer: Producer | None = None
        self._ends = self._look()

    def position(self) -> Any:
        return {"topic": self._topic, "ends": {str(at): end for at, end in self._ends.items()}}

    def delivered(self, noted: dict[str, Any]) -> set[Where]:
        before = noted["before"]
        if not before or before["topic"] != self._topic:
            return set()
        return self._sent_since(before["ends"], noted["token"])

    def deliver(self, files: Sequence[DataFile], noted: dict[str, Any], delivered: set[Where]) -> None:
        try:
            producer = self._connected()
            for rows in self._rows(files):
                sent = [
                    producer.send(
                        self._topic,
                        row["value"],
                        row["key"],
                        headers=deadletters.headers(row, noted["token"]),
                    )
                    for row in rows
                    if (row["topic"], row["partition"], row["offset"]) not in delivered
                ]
                for one in sent:
                    done = one.result()
                    self._ends[done.partition] = max(self._ends.get(done.partition, 0), done.offset + 1)
        except ClientError as error:
            raise LandingError(
                f"dead letters can't go to topic {self._topic}: {error}; they are kept, and sent when the job is run "
                "again"
            ) from error

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _connected(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                self._servers, **{"client_id": "ottla-landing", **_LARGE, **client_options(self._client)}
            )
            producer.start()
            self._producer = producer
        return self._producer

    def _look(self) -> dict[int, int]:
        try:
            with ClusterQueries(self._servers, self._client) as cluster:
                found = cluster.latest(cluster.partitions([self._topic]))
        except (ClientError, SourceError) as error:
            raise LandingError(f"dead letters can't go to topic {self._topic}: {error}") from error
        return {at.partition: end for at, end in found.items()}

    def _sent_since(self, ends: dict[str, int], token: str) -> set[Where]:
        """The records whose dead letters this delivery has brought to the topic after these offsets."""
        columns = ("key", "value", "offset", "timestamp", "headers")
        settings = ReadSettings(
            self._servers, self._client, columns, segments="never", fail_on_data_loss=False
        )
        found: set[Where] = set()
        for partition, end in self._ends.items():
            start = min(ends.get(str(partition), 0), end)
            try:
                for batch in read(OffsetRange(self._topic, "", partition, start, end), settings):
                    found.update(deadletters.delivered(batch, token))
            except ReadError as error:
                raise LandingError(f"dead letters in topic {self._topic} can't be read: {error}") from error
        return found

    def _rows(self, files: Sequence[DataFile]) -> Iterator[list[dict[str, Any]]]:
        for one in files:
            with self._from.fs.open_input_file(self._path(one)) as source:
                for batch in pq.ParquetFile(source).iter_batches(_ROWS):
                    yield deadletters.plain(batch)


def sink_of(landing: Landing, table: Table) -> DeadLetterSink | None:
    """The job's sink; None if a record that can't be parsed ends the job."""
    if landing.dead_letters is None:
        return None
    if landing.dead_letters.startswith("table:"):
        return TableSink(landing, table)
    return TopicSink(landing, table)


def dead_table(landing: Landing) -> Table:
    """The table of a landing's dead letters, of the same format and in the same catalogue."""
    where = (landing.dead_letters or "").partition(":")[2]
    return open_table(landing.format, where, catalog=landing.catalog, storage=landing.storage)
