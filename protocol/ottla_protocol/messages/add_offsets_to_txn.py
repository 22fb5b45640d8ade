"""AddOffsetsToTxn, key 25: a transaction is about to commit offsets of a group (KIP-98).

Versions 2 and 4 have new errors, 3 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, field


class AddOffsetsToTxnRequest(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    group_id: String = field(default="")


class AddOffsetsToTxnResponse(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
