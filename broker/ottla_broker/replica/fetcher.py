"""Followers fetch: one task for each connection to a leader. Kafka's ``ReplicaFetcherThread``.

A fetch names all partitions of the leader at once and waits there until one of them has something. Batches are appended
as they come, and the next fetch, which names the new end, acknowledges them: so it is sent at once.

Truncation follows KIP-595, as in Kafka since 2.7: a fetch carries the epoch of the follower's last record. A leader in
whose log that epoch ends elsewhere answers with its own epoch and end, and the follower truncates to where both agree.
What each answer does to a partition::

    none                    append, follow the high watermark and the log's start
    diverging epoch         truncate, fetch again
    OFFSET_OUT_OF_RANGE     the leader's log ends earlier: truncate; it begins later: restart there
    FENCED_LEADER_EPOCH     the leader is in a newer epoch: wait for the controller's request
    UNKNOWN_LEADER_EPOCH,   the leader doesn't know this epoch, topic or role yet, or any longer:
    NOT_LEADER_OR_FOLLOWER, fetch again after a short pause, which doubles each time
    UNKNOWN_TOPIC_*,
    INCONSISTENT_TOPIC_ID
    other errors            logged; fetch again after a pause

A partition that fails pauses alone; the others go on.

A partition that is added while a fetch waits at the leader must not wait with it: an election is over only when the new
leader has heard from its followers. So the waiting fetch is dropped, with its connection (:meth:`Fetcher.hurry`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.broker_link import BrokerLink
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.replica.replication_quota import ReplicationQuota
from ottla_broker.tasks import YieldEvery
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, KafkaError, error_code
from ottla_protocol.fetch_session import SESSION_ERRORS, FetchSession, SessionRequest
from ottla_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.schema import ZERO_UUID

_log = get_logger()

Key = tuple[str, int]

_BY_ID_SINCE: Final = 13
_STATE_SINCE: Final = 15
_DIVERGING_SINCE: Final = 12
_EARLIEST: Final = -2
_LATEST: Final = -1

# Bytes appended before other tasks get their turn on the event loop.
_SLICE_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 2048
"""What a partition's answer counts for besides its records."""
_SLICE_NEW: Final = 50
"""New partitions, whose logs are opened, before other tasks get their turn."""

_FIRST_PAUSE_SECONDS: Final = 0.01
"""Leader and followers hear from the controller at about the same time, so the first pause is short."""

_NOT_YET: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Two brokers hear of a change at different times: no reason to log."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """``replica.fetch.*`` and ``replica.socket.timeout.ms``."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    socket_timeout_ms: int = 30_000


class _Position(NamedTuple):
    """The statement of a fetch about a partition; the leader remembers it in the session."""

    topic_id: bytes | None
    offset: int
    last_epoch: int
    start_offset: int
    leader_epoch: int


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition that is fetched.

    Attributes:
        behind: by how many committed records it was behind its leader when it was last fetched.
        in_sync: whether it had everything committed then.
        position: what was last fetched for it.
        paused_until: when it may be fetched again, in seconds on the monotonic clock.
        next_pause: how long it pauses when the leader doesn't know of it yet, in seconds.
    """

    partition: Partition
    behind: int = 0
    in_sync: bool = False
    position: _Position | None = None
    paused_until: float = 0.0
    next_pause: float = _FIRST_PAUSE_SECONDS


class Fetcher:
    """Fetches from one broker the partitions that this one follows there. Owned by the loop thread; one task."""

    def __init__(
        self,
        leader_id: int,
        broker_id: int,
        broker_epoch: Callable[[], int],
        connect: Callable[[int], Awaitable[BrokerLink]],
        settings: FetcherSettings,
        clock: Clock,
        on_disk_error: Callable[[Partition, KafkaError], None],
        quota: ReplicationQuota | None = None,
    ) -> None:
        """``connect`` opens a connection to a broker or raises ConnectionError."""
        self.leader_id = leader_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._on_disk_error = on_disk_error
        self._quota = quota
        self._followed: dict[Key, _Followed] = {}
        self._session: FetchSession[Key, _Position] = FetchSession()
        self._connection: BrokerLink | None = None
        self._changed = asyncio.Event()
        # Whether partitions were added that the fetch under way doesn't name.
        self._added = False
        self._is_fetching = False
        # Whether the fetch under way has been dropped.
        self._is_dropped = False
        # Why the leader can't be fetched from, logged once; empty while it can.
        self._failure = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def behind(self) -> int:
        """Return the largest lag of a partition behind its leader, in committed records."""
        return max((each.behind for each in self._followed.values()), default=0)

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Fetch a partition, or go on with it in a new epoch."""
        self._followed[partition.topic, partition.partition] = _Followed(partition)
        self._added = True
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, key: Key) -> None:
        """Stop fetching a partition; one that isn't fetched is no error."""
        if self._followed.pop(key, None) is not None:
            self._changed.set()

    def hurry(self) -> None:
        """Fetch added partitions now, and not when the fetch under way is answered."""
        if self._added and self._is_fetching and self._connection is not None:
            self._is_dropped = True
            self._connection.close()

    async def close(self) -> None:
        self._followed.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            self._added = False
            now = self._clock.monotonic()
            ready = {key: each for key, each in self._followed.items() if each.paused_until <= now}
            if not ready:
                await self._wait(
                    min((each.paused_until - now for each in self._followed.values()), default=None)
                )
                continue
            try:
                connection = self._connection
                if connection is None or connection.closed:
                    self._session = FetchSession()
                    connection = self._connection = await self._connect(self.leader_id)
                await self._fetch(connection, ready)
            except (ConnectionError, TimeoutError) as error:
                self._session.failed()
                if not self._is_dropped:
                    if str(error) != self._failure:
                        self._failure = str(error)
                        _log.info("fetching from a leader failed", leader=self.leader_id, reason=str(error))
                    await self._wait(self._settings.backoff_ms / 1000)
            except Exception as error:
                # A defect, or an answer that makes no sense: this broker's other fetchers go on.
                _log.error("fetching from a leader failed", leader=self.leader_id, exc_info=error)
                self._session.failed()
                await self._wait(self._settings.backoff_ms / 1000)
            finally:
                self._is_dropped = False

    async def _wait(self, seconds: float | None) -> None:
        """Wait until a partition is added or removed, for ``seconds`` at most."""
        try:
            async with self._clock.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _fetch(self, connection: BrokerLink, ready: Mapping[Key, _Followed]) -> None:
        version = connection.version_of(ApiKey.FETCH)
        if version < _DIVERGING_SINCE:
            raise ConnectionError(
                f"broker {self.leader_id} speaks Fetch up to version {version}: a leader older than Kafka 2.7 can't be"
                " followed"
            )
        by_id = version >= _BY_ID_SINCE and all(
            each.partition.topic_id != ZERO_UUID for each in ready.values()
        )
        if not by_id:
            version = min(version, _BY_ID_SINCE - 1)
        quota = self._quota if self._quota is not None and self._quota.exceeded else None
        positions = await self._positions_of(ready, quota)
        if self._added:
            return  # partitions were added meanwhile: they are fetched together
        if not positions:
            if quota is not None:
                await self._wait(self._settings.backoff_ms / 1000)
            return
        session = self._session.request(positions, by_id=by_id)
        request = self._request(session, version, self._wait_ms(ready))
        self._is_fetching = True
        try:
            answer: FetchResponse = await connection.submit(
                request, timeout=self._settings.socket_timeout_ms / 1000, version=version
            )
        finally:
            self._is_fetching = False
        if self._failure:
            self._failure = ""
            _log.info("a leader is fetched from again", leader=self.leader_id)
        names = {each.partition.topic_id: key[0] for key, each in ready.items()} if answer.responses else {}
        answers: dict[Key, PartitionData] = {}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.topic
            for data in topic.partitions:
                answers[name, data.partition_index] = data
        if not self._session.answered(answer.error_code, answer.session_id, answers.keys()):
            self._pause_all(answer.error_code, ready)
            return
        await self._apply_all(connection, ready, positions, answers)

    async def _positions_of(
        self, ready: Mapping[Key, _Followed], quota: ReplicationQuota | None
    ) -> dict[Key, _Position]:
        """Return where to go on. ``quota``: one that is exceeded, for which partitions out of sync wait."""
        positions: dict[Key, _Position] = {}
        yields = YieldEvery(_SLICE_NEW)
        for key, each in ready.items():
            if quota is not None and not each.in_sync and quota.is_throttled(*key):
                continue
            is_new = each.position is None
            try:
                positions[key] = self._position_of(each)
            except KafkaError as error:
                self._disk_error(each.partition, error)
            if is_new:
                await yields.worked()
        return positions

    async def _apply_all(
        self,
        connection: BrokerLink,
        ready: Mapping[Key, _Followed],
        positions: Mapping[Key, _Position],
        answers: Mapping[Key, PartitionData],
    ) -> None:
        flushes: list[tuple[_Followed, asyncio.Future[None]]] = []
        yields = YieldEvery(_SLICE_BYTES)
        for key, data in answers.items():
            followed = ready[key]
            # The partition may have been removed, added again or moved to another epoch meanwhile.
            if not self._still_follows(followed, positions[key].leader_epoch):
                continue
            flushed = await self._apply(connection, followed, data)
            if flushed is not None:
                flushes.append((followed, flushed))
            await yields.worked(_ANSWER_BYTES + len(data.records or b""))
        for followed, flushed in flushes:
            # The next fetch acknowledges the records, so they must be on the device, and truncations too.
            try:
                await flushed
            except KafkaError as error:
                self._disk_error(followed.partition, error)

    def _pause_all(self, code: int, ready: Mapping[Key, _Followed]) -> None:
        """Pause all after an error of the whole request, unless only the session is lost: a new one begins at once."""
        if code in SESSION_ERRORS:
            return
        _log.warning(
            "a leader answers what was not asked for"
            if code == ErrorCode.NONE
            else "a leader refuses to be fetched from",
            leader=self.leader_id,
            error=error_code(code).name,
        )
        for followed in ready.values():
            self._pause(followed)

    @staticmethod
    def _position_of(followed: _Followed) -> _Position:
        partition, want = followed.partition, followed.position
        log = partition.log
        if (
            want is None
            or want.offset != log.log_end_offset
            or want.start_offset != log.log_start_offset
            or want.last_epoch != log.epochs.latest
            or want.leader_epoch != partition.leader_epoch
        ):
            want = followed.position = _Position(
                partition.topic_id,
                log.log_end_offset,
                log.epochs.latest,
                log.log_start_offset,
                partition.leader_epoch,
            )
        return want

    def _wait_ms(self, ready: Mapping[Key, _Followed]) -> int:
        """Return how long a fetch may wait at the leader: until the pause of a partition not named in it is over."""
        longest = self._settings.wait_max_ms
        if len(ready) == len(self._followed):
            return longest
        # None, if the others were removed while the connection was opened.
        pauses = [each.paused_until for key, each in self._followed.items() if key not in ready]
        if not pauses:
            return longest
        return max(1, min(longest, round((min(pauses) - self._clock.monotonic()) * 1000)))

    def _request(self, session: SessionRequest[Key, _Position], version: int, wait_ms: int) -> FetchRequest:
        settings = self._settings
        by_id = version >= _BY_ID_SINCE
        topics: dict[str, FetchTopic] = {}
        for (name, index), want in session.fetch.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(
                    topic=name, topic_id=want.topic_id or ZERO_UUID, partitions=[]
                )
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.offset,
                    last_fetched_epoch=want.last_epoch,
                    log_start_offset=want.start_offset,
                    partition_max_bytes=settings.max_bytes,
                )
            )
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for (name, index), topic_id in session.forgotten:
            key = (name, topic_id or ZERO_UUID)
            if key not in forgotten:
                forgotten[key] = ForgottenTopic(
                    topic="" if by_id else name, topic_id=key[1] if by_id else ZERO_UUID, partitions=[]
                )
            forgotten[key].partitions.append(index)
        states = version >= _STATE_SINCE
        return FetchRequest(
            replica_id=-1 if states else self._broker_id,
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch())
            if states
            else ReplicaState(),
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    async def _apply(
        self, connection: BrokerLink, followed: _Followed, data: PartitionData
    ) -> asyncio.Future[None] | None:
        """Apply an answer to its partition; the future, if any, is an fsync that is due."""
        partition = followed.partition
        try:
            code = data.error_code
            if code == ErrorCode.NONE:
                followed.next_pause = _FIRST_PAUSE_SECONDS
                if data.diverging_epoch.end_offset >= 0:
                    self._truncate(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                    return partition.log.unflushed.truncation_recorded()
                records = memoryview(b"") if data.records is None else data.records
                quota, key = self._quota, (partition.topic, partition.partition)
                if len(records) and quota is not None and quota.is_throttled(*key):
                    quota.record(len(records))
                flushed = partition.append_from_leader(records, data.high_watermark, data.log_start_offset)
                followed.behind = max(0, data.high_watermark - partition.log.log_end_offset)
                followed.in_sync = not followed.behind
                return flushed
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._find_range(connection, followed)
                return partition.log.unflushed.truncation_recorded()
            self._failed(followed, code)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._disk_error(partition, error)
            else:
                _log.error(
                    "a leader's records are refused",
                    topic=partition.topic,
                    partition=partition.partition,
                    leader=self.leader_id,
                    reason=error.message,
                )
                self._pause(followed)
        return None

    def _truncate(self, followed: _Followed, epoch: int, end_offset: int) -> None:
        """Truncate to where the leader's ``epoch`` ends, in its log or in this one, whichever comes first.

        The next fetch finds out whether both agree below that, and if not, truncates again.
        """
        partition, log = followed.partition, followed.partition.log
        own_epoch, own_end = log.epoch_end_offset(epoch)
        target = end_offset if own_epoch < 0 else min(end_offset, own_end)
        before = (log.log_end_offset, log.epochs.latest)
        if target < log.log_end_offset:
            _log.info(
                "log differs from the leader's",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader_id,
                leaders_epoch=epoch,
                leaders_end=end_offset,
                truncated_to=target,
            )
        partition.truncate(target)
        if before == (log.log_end_offset, log.epochs.latest):
            # The next fetch would get the same answer.
            self._pause(followed)

    async def _find_range(self, connection: BrokerLink, followed: _Followed) -> None:
        """Truncate or restart a log that ends where the leader has nothing: above its end, or below its start."""
        partition = followed.partition
        epoch = partition.leader_epoch
        end = await self._offset(connection, followed, _LATEST)
        if end is None or not self._still_follows(followed, epoch):
            return
        if end < partition.log.log_end_offset:
            _log.warning(
                "the leader's log is shorter: an unclean election, or a lost disk",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader_id,
                leaders_end=end,
                end_offset=partition.log.log_end_offset,
            )
            partition.truncate(end)
            return
        start = await self._offset(connection, followed, _EARLIEST)
        if start is None or not self._still_follows(followed, epoch):
            return
        if start > partition.log.log_end_offset:
            partition.restart_at(start)
        else:
            # Within the leader's range: its log has grown meanwhile, so the next fetch may work.
            self._pause(followed)

    def _still_follows(self, followed: _Followed, epoch: int) -> bool:
        """Whether an answer that took a while still applies to what this broker follows."""
        partition = followed.partition
        return (
            self._followed.get((partition.topic, partition.partition)) is followed
            and partition.leader_epoch == epoch
            and partition.role is Role.FOLLOWER
        )

    async def _offset(self, connection: BrokerLink, followed: _Followed, timestamp: int) -> int | None:
        """The end or the start of the leader's log; None when it refuses."""
        partition = followed.partition
        request = ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        answer = await connection.submit(request, timeout=self._settings.socket_timeout_ms / 1000)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self._failed(followed, found.error_code)
            return None
        return int(found.offset)

    def _failed(self, followed: _Followed, code: int) -> None:
        partition = followed.partition
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # The controller sends the new epoch; until then no fetch can succeed.
            if self._followed.get((partition.topic, partition.partition)) is followed:
                self.remove((partition.topic, partition.partition))
            return
        if code not in _NOT_YET:
            _log.warning(
                "a leader refuses a fetch",
                topic=partition.topic,
                partition=partition.partition,
                leader=self.leader_id,
                error=error_code(code).name,
            )
            self._pause(followed)
            return
        longest = self._settings.backoff_ms / 1000
        followed.paused_until = self._clock.monotonic() + min(longest, followed.next_pause)
        followed.next_pause = min(longest, followed.next_pause * 2)

    def _pause(self, followed: _Followed) -> None:
        followed.paused_until = self._clock.monotonic() + self._settings.backoff_ms / 1000

    def _disk_error(self, partition: Partition, error: KafkaError) -> None:
        self.remove((partition.topic, partition.partition))
        self._on_disk_error(partition, error)
