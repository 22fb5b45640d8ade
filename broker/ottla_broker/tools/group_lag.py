"""Records of ``__ottla_group_lag`` as ``ottla log dump`` shows them."""

from __future__ import annotations

import math
from typing import Any

from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.group_lag_records import GroupLagKey, GroupLagState, GroupLagValue
from ottla_protocol.versioned import decode_versioned

Entry = dict[str, Any]


def decode_record(key: bytes | None, value: bytes | None) -> Entry | None:
    """Key and value as a structure; None for another record."""
    if key is None:
        return None
    try:
        place = decode_versioned(GroupLagKey, key)
        body = None if value is None else decode_versioned(GroupLagValue, value)
    except ProtocolError:
        return None
    payload = None
    if body is not None:
        payload = {"timeMs": body.time_ms, "groups": [_group(each) for each in body.groups]}
    return {
        "key": {"level": place.level, "slot": place.slot, "source": place.source, "part": place.part},
        "payload": payload,
    }


def _group(group: GroupLagState) -> Entry:
    return {
        "group": group.group_id,
        "kind": group.kind,
        "records": group.records,
        "mostRecords": group.most_records,
        "lagMs": group.lag_ms,
        "commitAgeMs": group.commit_age_ms,
        "slope": group.slope if math.isfinite(group.slope) else None,
        "partitions": group.partitions,
        "unknownPartitions": group.unknown_partitions,
    }
