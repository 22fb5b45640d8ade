"""ListTransactions, key 66: the transactional ids that a broker coordinates (KIP-664).

All versions are flexible. Version 1 selects transactions by their age (KIP-994).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class ListTransactionsRequest(Message, key=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+"):
    """Empty filters select all."""

    state_filters: list[String] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Int64 = field("1+", default=-1)
    """Milliseconds that a transaction must have been open for; below 0 for all."""


class TransactionState(Struct):
    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    transaction_state: String = field(default="")


class ListTransactionsResponse(Message, key=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[String] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)
