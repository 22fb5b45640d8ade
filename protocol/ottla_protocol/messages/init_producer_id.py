"""InitProducerId: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, field


class InitProducerIdRequest(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    """Part of InitProducerId."""

    transactional_id: String | None = field(default="")
    transaction_timeout_ms: Int32 = field(default=0)
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


class InitProducerIdResponse(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    """Part of InitProducerId."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field(default=0)
