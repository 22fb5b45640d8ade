"""The APIs that the broker serves: one module per API, with ``API``, its facts, and ``async def handle(ctx, request)``.

:mod:`ottla_broker.requests.serving` runs the coroutine in the call that has read the request;
:mod:`ottla_broker.requests.inline` says what it may wait for. One that may loop over many elements pauses.

To change

- when a produce request is acknowledged: ``handlers/produce.py`` ``_append`` (acks=1: at once, unless an fsync is due
  or the batch is a duplicate); in these cases and with acks=all ``_committed``, which waits by
  ``replica/delayed_produce.py`` ``DelayedProduce`` for ``replica/partition.py`` ``is_committed``
- whether acks=all has been reached: ``handlers/produce.py`` ``_committed``; the wait: ``replica/delayed_produce.py``
  ``DelayedProduce``
- which APIs are served, in which versions: ``API`` at the head of each module, such as ``handlers/produce.py``;
  ``make format`` writes ``handlers/index.py`` from it
"""

from __future__ import annotations

from ottla_broker.handlers.index import INDEX
from ottla_broker.requests.api import Served


def served_apis(
    *,
    in_cluster: bool,
    consumer_protocol: bool = True,
    share_groups: bool = True,
    client_telemetry: bool = False,
) -> dict[int, Served]:
    """The APIs of a broker that stands alone or is in a cluster."""
    has = {
        None: True,
        "consumer protocol": consumer_protocol,
        "share groups": share_groups,
        "client telemetry": client_telemetry,
    }
    return {key: api for key, api in INDEX.items() if has[api.feature] and api.in_clusters <= in_cluster}
