"""Produce: append record batches as they came.

A batch is checked with its records (:mod:`ottla_broker.log.record_validation`), offset and leader epoch are written
into it, and the bytes go to the segment. A request with many or compressed records is checked before anything of it is
appended, on a thread where that takes long: see :mod:`.slow_produce`.

``acks`` 0 has no response, 1 waits for the leader (and its fsync, where one is due), -1 for all in-sync replicas.
Versions 0 to 2 carry the old message formats: see :mod:`.old_produce`.

Batches of transactions need WRITE on the request's transactional id, and the transaction coordinator's word that the
partition belongs to the transaction: see :mod:`.produce_verification`.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.events import get_logger
from ottla_broker.handlers import slow_produce
from ottla_broker.handlers.api import TOPIC, TRANSACTIONAL_ID, WRITE, Api, MiB
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.late_requests import is_uncertain
from ottla_broker.handlers.produce_verification import (
    Failure,
    Verified,
    append_verified,
    transactional_batches,
)
from ottla_broker.handlers.slow_produce import FORMAT_2_SINCE, CheckedRecords, check_codec
from ottla_broker.handlers.turns import OPENED_AT_ONCE
from ottla_broker.log.record_validation import QUICK_BYTES, Validated
from ottla_broker.log.validator import RecordsRefused
from ottla_broker.log.verification import UNVERIFIED
from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.network.pending_response import CloseConnection, PendingResponse
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
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
"""A request with more partitions is appended in turns with everything else: see :mod:`.sliced_produce`. So is one
that opens many logs."""
_WRITES_INTERNAL = "__admin_client"
_BROKER = re.compile(r"broker-[0-9]+")
"""The client ids of brokers, which send samples of groups' lag to the leader of their partition."""

_NONE: CheckedRecords = MappingProxyType({})
_UNKNOWN: Final = memoryview(b"")


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


def handle(ctx: RequestContext, request: ProduceRequest) -> Any:
    """Append what the request has; see :meth:`.Service.handle` for what is returned."""
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    if count > OPENED_AT_ONCE:
        from ottla_broker.handlers import sliced_produce

        opens_many = sliced_produce.count_closed(ctx, request) > OPENED_AT_ONCE
        if count > MANY or opens_many:
            return sliced_produce.steps(ctx, request, serve, opens_many)
    return serve(ctx, request)


def serve(ctx: RequestContext, request: ProduceRequest, checked_records: CheckedRecords = _NONE) -> Any:
    """Append all of a request at once; what is returned is the same.

    ``checked_records``: of partitions whose records were checked before.
    """
    if checked_records is _NONE:
        if ctx.version < FORMAT_2_SINCE:
            from ottla_broker.handlers import old_produce

            return old_produce.handle(ctx, request, serve)
        if _may_take_long(request):
            return slow_produce.handle(ctx, request, serve)
    refusal: tuple[ErrorCode, str | None] | None = None
    if request.acks not in (-1, 0, 1):
        refusal = ErrorCode.INVALID_REQUIRED_ACKS, None
    if request.transactional_id is None or refusal is not None:
        return _append(ctx, request, refusal, checked_records)
    batches = transactional_batches(request)
    refusal = _transactional_refusal(ctx, request.transactional_id, batches)
    if refusal is not None:
        return _append(ctx, request, refusal, checked_records)

    batches = _permitted(ctx, batches)
    uncertain = _uncertain(ctx, batches)
    timely = {key: header for key, header in batches.items() if key not in uncertain}

    def append(request: ProduceRequest, verified: Verified, pending: PendingResponse | None) -> Any:
        verified.failures.update(uncertain)
        if pending is not None:
            verified.failures.update(_uncertain(ctx, timely))
            return _append(ctx, request, None, _of_copy(request, checked_records), verified, pending)
        return _append(ctx, request, None, checked_records, verified)

    return append_verified(ctx, request, timely, append)


def _append(
    ctx: RequestContext,
    request: ProduceRequest,
    refusal: tuple[ErrorCode, str | None] | None,
    checked_records: CheckedRecords,
    verified: Verified | None = None,
    pending: PendingResponse | None = None,
) -> Any:
    """Append the batches, unless the request as a whole is refused; see :func:`handle`.

    ``verified``: of a request with a transactional id. If replicas are waited for, ``pending`` is the response.
    """
    acks, version = request.acks, ctx.version
    guard = None
    now_ms = ctx.services.clock.now_ms()
    waits: list[_Wait] = []
    topics = []
    # Texts and codes, not errors: an error's traceback would keep the request until the next garbage collection.
    failure: str | None = None
    place = -1
    for topic in request.topic_data:
        name = topic.name
        answers = []
        for data in topic.partition_data:
            place += 1
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.append(answer)
            checked = False
            try:
                partition = ctx.partition(name, data.index)
                if refusal is not None:
                    raise KafkaError(*refusal)
                if verified is not None:
                    key = (name, data.index)
                    if key in verified.failures:
                        raise KafkaError(*verified.failures[key])
                    guard = verified.guards.get(key, UNVERIFIED)
                if name in INTERNAL_TOPICS and not _may_write_internal(ctx, name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by brokers only")
                known = checked_records.get(place, _UNKNOWN)
                if known is _UNKNOWN:
                    known = data.records
                    if known is None or not len(known):
                        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch in the request")
                    check_codec(version, known)
                checked = True
                if acks == -1 and partition.is_under_min_isr():
                    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
                if known is None:
                    continue
                if isinstance(known, KafkaError):
                    partition.counts.produce_requests += 1
                    raise known
                info = partition.append(known, now_ms, guard)
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
                if checked and partition.is_open and error.code not in _WITHOUT_START_OFFSET:
                    answer.log_start_offset = partition.log.log_start_offset
        topics.append(TopicProduceResponse(name=name, partition_responses=answers))
    if acks == 0:
        if failure is not None:
            # There is no response for the error. As in Kafka, the connection is closed, which the client notices.
            raise CloseConnection(f"produce with acks=0 failed: {failure}")
        return None
    response = ProduceResponse(responses=topics)
    if waits:
        return _answer_when_committed(
            ctx, acks, request.timeout_ms, response, waits, pending or PendingResponse()
        )
    return response


def _may_write_internal(ctx: RequestContext, topic: str) -> bool:
    """Whether the client may write an internal topic. In Kafka, its id is enough."""
    client_id = ctx.client_id or ""
    is_broker = topic == LAG_TOPIC and _BROKER.fullmatch(client_id) is not None
    return (is_broker or client_id == _WRITES_INTERNAL) and ctx.may(
        AclOperation.CLUSTER_ACTION, AclResource.CLUSTER
    )


def _of_copy(request: ProduceRequest, checked_records: CheckedRecords) -> CheckedRecords:
    """The checked records, as parts of a copy of the request."""
    if not checked_records:
        return checked_records
    parts = [data for topic in request.topic_data for data in topic.partition_data]
    return {
        place: Validated(memoryview(parts[place].records or b""), known.header)
        if isinstance(known, Validated)
        else known
        for place, known in checked_records.items()
    }


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


def _answer_when_committed(
    ctx: RequestContext,
    acks: int,
    timeout_ms: int,
    response: ProduceResponse,
    waits: Sequence[_Wait],
    pending: PendingResponse,
) -> PendingResponse:
    # Nothing that waits may hold the request: its records are as large as its frame.
    def run(outcomes: Sequence[Outcome]) -> None:
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
        pending.complete(response)

    awaited = [Awaited(partition.when_committed, end_offset) for _, partition, end_offset in waits]
    delayed = DelayedProduce(awaited, ctx.services.clock, run)
    pending.abandon = delayed.abandon
    delayed.start(timeout_ms)
    return pending


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
) -> tuple[ErrorCode, str | None] | None:
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
