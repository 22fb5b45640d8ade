"""EndTxn, key 26: commit or abort a transaction (KIP-98).

Versions 2 and 4 have new errors, 3 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, field


class EndTxnRequest(Message, key=ApiKey.END_TXN, versions="0-4", flexible="3+"):
    """``committed`` False aborts."""

    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    committed: Bool = field(default=False)


class EndTxnResponse(Message, key=ApiKey.END_TXN, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
