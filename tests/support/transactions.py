"""Whether a broker has transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.wire import Wire

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


def has_transactions(broker: BrokerProcess) -> bool:
    with Wire(broker.port) as wire:
        answer = wire.call(ApiVersionsRequest(), 0)
    return any(each.api_key == ApiKey.END_TXN for each in answer.api_keys)
