"""``/health/process``: what ``ottla cluster doctor`` asks about a broker's process, as a short JSON document.

``/metrics`` has the same numbers among thousands of others. The document says which broker answers, because an address
such as 127.0.0.1:9404 may be another one's where it is asked.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from ottla_broker.metrics.traffic import process_facts
from ottla_broker.network.http import Page, json_page

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources


async def process_page(sources: Sources) -> Page:
    """The page; a number is null where the system doesn't say it, or sets no limit."""
    facts = await sources.background.run(process_facts, sources.logs.files)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return json_page(
        200,
        {
            "cluster_id": sources.metadata.cluster_id,
            "broker_id": sources.config.broker_id,
            "open_descriptors": None if facts is None else facts.descriptors,
            "max_descriptors": None if limit == resource.RLIM_INFINITY else limit,
            "resident_bytes": None if facts is None else facts.resident_bytes,
        },
    )
