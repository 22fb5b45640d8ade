"""InitProducerId, key 22: give a producer an id, for idempotence and transactions (KIP-98).

Version 2 is flexible, 3 lets a producer keep its id and raise its epoch (KIP-360), 4 has new errors, 5 is for
transactions (KIP-890).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, field


class InitProducerIdRequest(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    """Without a transactional id only an id is drawn; with one, the older instance is fenced."""

    transactional_id: String | None = field(default="")
    transaction_timeout_ms: Int32 = field(default=0)
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)


class InitProducerIdResponse(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field(default=0)
