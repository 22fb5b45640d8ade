"""Produce: append record batches as they came.

A batch is checked with its records (:mod:`ottla_broker.log.record_validation`), offset and leader epoch are written
into it, and the bytes go to the segment. A request with many or compressed records is checked before anything of it is
appended, on a thread where that takes long: see :mod:`ottla_broker.produce.slow_produce`.

``acks`` 0 has no response, 1 waits for the leader (and its fsync, where one is due), -1 for all in-sync replicas.
Versions 0 to 2 carry the old message formats: see :mod:`ottla_broker.produce.old_produce`.

Batches of transactions need WRITE on the request's transactional id, and the transaction coordinator's word that the
partition belongs to the transaction: see :mod:`ottla_broker.produce.produce_verification`.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.events import get_logger
from ottla_broker.log.record_validation import QUICK_BYTES, Validated
from ottla_broker.log.validator import RecordsRefused
from ottla_broker.log.verification import UNVERIFIED, VerificationGuard
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.produce import slow_produce
from ottla_broker.produce.produce_verification import (
    Failure,
    Verified,
    transactional_batches,
    verification_of,
)
from ottla_broker.produce.slow_produce import FORMAT_2_SINCE, CheckedRecords, check_codec
from ottla_broker.replica.delayed_produce import Awaited
from ottla_broker.requests.api import TOPIC, TRANSACTIONAL_ID, WRITE, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Running, abandon_all, if_left, pause, unread
from ottla_broker.requests.late_requests import is_uncertain
from ottla_broker.requests.turns import OPENED, OPENED_AT_ONCE
from ottla_broker.requests.waits import until_reached
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla_protocol.partitioning import LAG_TOPIC
from ottla_protocol.records.batch import CODEC_MASK, FLAGS_AT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla_broker.network.service import ClientConnection
    from ottla_broker.replica.partition import Partition
    from ottla_protocol.records.batch import BatchHeader

    _Wait = tuple[PartitionProduceResponse, Partition, int]

API = Api(
    0,
    (0, 12),
    # The transactional id is for batches of transactions. CLUSTER_ACTION, too, may write the coordinators' topics.
    needs={TOPIC: WRITE, TRANSACTIONAL_ID: WRITE},
    # About 7,000 partitions, which are decoded in one turn of the event loop.
    memory=5 * MiB // 2,
    quick_bytes=16 * 1024,
    is_decoded_at_once=True,
    is_bulky=True,
    is_carried_out=True,
    quota=QuotaKind.PRODUCE,
)

_log = get_logger()

MANY: Final = 500
"""A request with more partitions is appended in portions, in turns with everything else on the event loop: see
:mod:`ottla_broker.produce.sliced_produce`. So is one that opens many logs."""
ACKS: Final = (-1, 0, 1)
_WRITES_INTERNAL = "__admin_client"
_BROKER = re.compile(r"broker-[0-9]+")
"""The client ids of brokers, which send samples of groups' lag to the leader of their partition."""

_NONE: CheckedRecords = MappingProxyType({})
_UNKNOWN: Final[Any] = object()


_WITHOUT_START_OFFSET = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
"""Errors of an append that Kafka answers without the log's start offset (``ReplicaManager.appendToLocalLog``)."""


async def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append what the request has; without acks there is no response. Raises CloseConnection."""
    count = _count(request)
    produced = None
    if count > OPENED_AT_ONCE:
        opens_many = _count_closed(ctx, request) > OPENED_AT_ONCE
        if count > MANY or opens_many:
            produced = _in_portions(ctx, request, opens_many)
    if produced is None:
        produced = _produce(ctx, request)
    # Nothing that waits may hold the request: its records are as large as its frame.
    del request
    return await produced


def _count(request: ProduceRequest) -> int:
    """The request's partitions."""
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    return count


async def _in_portions(
    ctx: RequestContext, request: ProduceRequest, opens_many: bool
) -> ProduceResponse | None:
    """Each portion of the partitions is a request of its own. Nothing is read from the connection meanwhile."""
    from ottla_broker.produce.sliced_produce import PORTION, WORK, join, portions

    # The request's buffer is used again before the last portion's turn.
    _keep(request)
    answers: list[Running[ProduceResponse | None]] = []
    with unread(ctx.connection), if_left(lambda: abandon_all(answers)):
        for portion in portions(request, OPENED_AT_ONCE if opens_many else PORTION):
            work = WORK * _count(portion) + OPENED * _count_closed(ctx, portion)
            answers.append(Running(_produce(ctx, portion)).start())
            await pause(work)
        del request, portion
        return await join(answers)


async def _produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Check the records, verify the transaction, append, and wait for the replicas. Raises CloseConnection."""
    acks, timeout_ms = request.acks, request.timeout_ms
    if (
        ctx.version < FORMAT_2_SINCE
        or (request.transactional_id is not None and acks in ACKS)
        or _may_take_long(request)
    ):
        response, waits = await _prepared(ctx, request)
    else:
        response, waits = _append(ctx, request, None, _NONE, None)
    # Nothing that waits may hold the request: its records are as large as its frame.
    del request
    if waits:
        await _committed(ctx, acks, timeout_ms, waits)
    return response


async def _prepared(
    ctx: RequestContext, request: ProduceRequest
) -> tuple[ProduceResponse | None, list[_Wait]]:
    """Append what has to be checked or verified first. It waits only where that takes long."""
    hold = _Hold(ctx.connection, request)
    try:
        checked, verified, refusal = _NONE, None, None
        if ctx.version < FORMAT_2_SINCE or _may_take_long(request):
            checked = await _checked(ctx, request, hold)
        if request.transactional_id is not None:
            batches = transactional_batches(request)
            refusal = _transactional_refusal(ctx, request.transactional_id, batches)
            if refusal is None:
                verified = await _verified(ctx, request, _permitted(ctx, batches), hold)
        return _append(ctx, request, refusal, checked, verified)
    finally:
        hold.end()


class _Hold:
    """Keeps a request while its handler waits before it appends.

    The request's buffer is used again, so its records are copied. And nothing is read from its connection, as in Kafka:
    a later batch mustn't get ahead.
    """

    __slots__ = ("_connection", "_request", "_stands")

    def __init__(self, connection: ClientConnection, request: ProduceRequest) -> None:
        self._connection, self._request = connection, request
        self._stands = False

    def begin(self) -> None:
        """Before the handler waits; again before it waits once more."""
        if not self._stands:
            self._stands = True
            _keep(self._request)
            self._connection.begin_long()

    def end(self) -> None:
        """Once the batches are appended."""
        if self._stands:
            self._connection.end_long()


async def _checked(ctx: RequestContext, request: ProduceRequest, hold: _Hold) -> CheckedRecords:
    """Check all records, or convert them, before any is appended: at once, or on a thread where it takes long."""
    if ctx.version < FORMAT_2_SINCE:
        from ottla_broker.produce import old_produce

        jobs, budget = old_produce.conversions(ctx, request), old_produce.budget()
    else:
        jobs, budget = slow_produce.checks(ctx, request), slow_produce.budget()
    checked = slow_produce.at_once(jobs, budget)
    if checked is None:
        hold.begin()
        checked = await slow_produce.on_a_thread(ctx, jobs)
    return checked


async def _verified(
    ctx: RequestContext,
    request: ProduceRequest,
    batches: Mapping[tuple[str, int], BatchHeader],
    hold: _Hold,
) -> Verified:
    """Ask the transaction's coordinator about the batches that begin a transaction in their partition."""
    uncertain = _uncertain(ctx, batches)
    timely = {key: header for key, header in batches.items() if key not in uncertain}
    verification = verification_of(ctx, request, timely)
    if isinstance(verification, Verified):
        verified = verification
    else:
        hold.begin()
        verified = await verification
        uncertain.update(_uncertain(ctx, timely))
    verified.failures.update(uncertain)
    return verified


def _append(
    ctx: RequestContext,
    request: ProduceRequest,
    refusal: Failure | None,
    checked_records: CheckedRecords,
    verified: Verified | None,
) -> tuple[ProduceResponse | None, list[_Wait]]:
    """Append the batches, unless the request as a whole is refused. Returns the answer, and what it waits for.

    As in Kafka, a topic that is named twice is answered once, and one without partitions isn't. ``verified``: of a
    request with a transactional id. Raises CloseConnection where an error has no response.
    """
    acks, version = request.acks, ctx.version
    if acks not in ACKS:
        refusal = ErrorCode.INVALID_REQUIRED_ACKS, None
    guard, now_ms = None, ctx.services.clock.now_ms()
    waits: list[_Wait] = []
    topics: dict[str, list[PartitionProduceResponse]] = {}
    # Texts and codes, not errors: an error's traceback would keep the request until the next garbage collection.
    failure: str | None = None
    place = -1
    for topic in request.topic_data:
        name = topic.name
        for data in topic.partition_data:
            place += 1
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            topics.setdefault(name, []).append(answer)
            checked: Partition | None = None
            try:
                partition = ctx.partition(name, data.index)
                if refusal is not None:
                    raise KafkaError(*refusal)
                if verified is not None:
                    guard = _guard(verified, (name, data.index))
                if name in INTERNAL_TOPICS and not _may_write_internal(ctx, name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by brokers only")
                batch = memoryview(data.records or b"")
                found = checked_records.get(place, _UNKNOWN)
                if found is _UNKNOWN:
                    if not batch:
                        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch in the request")
                    check_codec(version, batch)
                checked = partition
                if acks == -1 and partition.is_under_min_isr():
                    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
                if found is None:
                    continue
                if isinstance(found, KafkaError):
                    partition.counts.produce_requests += 1
                    raise found
                records = batch if found is _UNKNOWN else Validated(batch, found)
                info = partition.append(records, now_ms, guard)
                answer.base_offset = info.first_offset
                answer.log_append_time_ms = info.log_append_time
                answer.log_start_offset = info.log_start_offset
                if info.flush_due or acks == -1 or info.duplicate:
                    end_offset = info.last_offset + 1
                    if not partition.is_committed(end_offset):
                        waits.append((answer, partition, end_offset))
            except KafkaError as error:
                failure = str(error)
                _put_error(answer, error)
                ctx.services.replicas.counters.produce_failed(name, error.code, len(data.records or b""))
                _put_start(answer, error, checked)
    if acks:
        return _response(topics), waits
    if failure is not None:
        # There is no response for the error. As in Kafka, the connection is closed, which the client notices.
        raise CloseConnection(f"produce with acks=0 failed: {failure}")
    return None, []


def _response(topics: Mapping[str, list[PartitionProduceResponse]]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=name, partition_responses=parts) for name, parts in topics.items()
        ]
    )


def _guard(verified: Verified, key: tuple[str, int]) -> VerificationGuard:
    """What the transactional batch of a partition is appended under. Raises KafkaError: its transaction is refused."""
    if key in verified.failures:
        raise KafkaError(*verified.failures[key])
    return verified.guards.get(key, UNVERIFIED)


def _put_start(answer: PartitionProduceResponse, error: KafkaError, partition: Partition | None) -> None:
    """Some errors say where the log starts; ``partition``: None if the batch hasn't come so far."""
    if partition is not None and partition.is_open and error.code not in _WITHOUT_START_OFFSET:
        answer.log_start_offset = partition.log.log_start_offset


def _may_write_internal(ctx: RequestContext, topic: str) -> bool:
    """Whether the client may write an internal topic. In Kafka, its id is enough."""
    client_id = ctx.client_id or ""
    is_broker = topic == LAG_TOPIC and _BROKER.fullmatch(client_id) is not None
    return (is_broker or client_id == _WRITES_INTERNAL) and ctx.may(
        AclOperation.CLUSTER_ACTION, AclResource.CLUSTER
    )


def _count_closed(ctx: RequestContext, request: ProduceRequest) -> int:
    """How many logs the request has to open."""
    return ctx.services.replicas.count_closed(
        (topic.name, data.index) for topic in request.topic_data for data in topic.partition_data
    )


def _keep(request: ProduceRequest) -> None:
    """Copy the records: the request's buffer is used again as soon as the handler waits."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None:
                data.records = memoryview(bytearray(records))


def _may_take_long(request: ProduceRequest) -> bool:
    """Whether the records may take more than some milliseconds to check, as compressed ones do."""
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None:
                size += len(records)
                if len(records) > FLAGS_AT and records[FLAGS_AT] & CODEC_MASK:
                    return True
    return size > QUICK_BYTES


async def _committed(ctx: RequestContext, acks: int, timeout_ms: int, waits: Sequence[_Wait]) -> None:
    """Wait until the replicas in sync have the records, and put the errors into the answers."""
    awaited = [Awaited(partition.when_committed, end_offset) for _, partition, end_offset in waits]
    outcomes = await until_reached(ctx, awaited, timeout_ms)
    for (answer, partition, _), outcome in zip(waits, outcomes, strict=True):
        code = outcome.error
        try:
            if code is ErrorCode.NONE and acks == -1 and partition.is_under_min_isr():
                # All replicas in sync have it, but they are fewer than the topic demands.
                code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        except KafkaError as error:
            code = error.code
        if code is not ErrorCode.NONE:
            _put_error(answer, KafkaError(code))


def _put_error(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    if error.message:
        answer.error_message = error.message
        if isinstance(error, RecordsRefused):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=what)
                for index, what in error.records
            ]


def _transactional_refusal(
    ctx: RequestContext, transactional_id: str, batches: Mapping[tuple[str, int], BatchHeader]
) -> Failure | None:
    """The error of a request that may not have these transactional batches, if any."""
    if len({(header.producer_id, header.producer_epoch) for header in batches.values()}) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the request has batches of several producers"
    if batches and not ctx.authorize(AclResource.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None
    return None


def _permitted(
    ctx: RequestContext, batches: Mapping[tuple[str, int], BatchHeader]
) -> dict[tuple[str, int], BatchHeader]:
    """The batches for topics that the client may write. Those for others mustn't touch what is known of a producer."""
    return {
        key: header
        for key, header in batches.items()
        if key[0] not in INTERNAL_TOPICS and ctx.shows(AclResource.TOPIC, key[0])
    }


def _uncertain(
    ctx: RequestContext, batches: Mapping[tuple[str, int], BatchHeader]
) -> dict[tuple[str, int], Failure]:
    """The batches that may have been sent before their producer went on (decision 9).

    A producer that still uses the connection sends them again, with the same sequence numbers. Raises CloseConnection
    if one of them is late.
    """
    found = {}
    for key, header in batches.items():
        partition = ctx.services.replicas.partition(*key)
        if partition is not None:
            arrival = partition.hear(
                header.producer_id, header.producer_epoch, ctx.connection.age, header.base_sequence
            )
            if is_uncertain(arrival, "its producer"):
                found[key] = _UNCERTAIN
    return found


_UNCERTAIN: Final[Failure] = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    "The batch may have been sent before its producer's last abort: send it again",
)
