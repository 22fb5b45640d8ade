"""Share sessions: the partitions that a member fetches."""

from __future__ import annotations

import pytest

from ottla_broker.coordinator.share.sessions import MOST_PLACES, ShareSession
from ottla_protocol.errors import ErrorCode, KafkaError


def test_a_session_has_a_limited_number_of_partitions() -> None:
    session = ShareSession("g", "m")
    every = [(bytes(16), index) for index in range(MOST_PLACES)]
    session.change(every, ())
    more = [(bytes(16), index) for index in range(MOST_PLACES, MOST_PLACES + 3)]
    with pytest.raises(KafkaError) as refused:
        session.change(more, ())
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert list(session.places) == every
    session.change(more, every[:3])
    assert len(session.places) == MOST_PLACES
