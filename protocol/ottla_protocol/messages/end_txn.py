"""EndTxn, key 26: commit or abort a transaction (KIP-98).

Versions 2 and 4 have new errors, 3 is flexible. Version 5 raises the producer's epoch (KIP-890).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, field


class EndTxnRequest(Message, key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """``committed`` False aborts."""

    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    committed: Bool = field(default=False)


class EndTxnResponse(Message, key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """The producer's id and epoch for its next transaction; -1 with an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
