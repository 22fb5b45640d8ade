"""AllocateProducerIds, key 67: a broker asks the controller for a block of producer ids (KIP-730).

There is one version, and it is flexible. Kafka: ``AllocateProducerIdsRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, field


class AllocateProducerIdsRequest(Message, key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    broker_id: Int32 = field(default=0)
    broker_epoch: Int64 = field(default=-1)


class AllocateProducerIdsResponse(Message, key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """The block: its first id and its length."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id_start: Int64 = field(default=0)
    producer_id_len: Int32 = field(default=0)
