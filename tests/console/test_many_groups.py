"""Ten thousand groups: a page shows a part of them, and asks brokers about that part alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla_client.admin import GroupListing, PartitionLag
from ottla_client.types import OffsetAndMetadata, TopicPartition
from ottla_console.pages.groups import groups
from ottla_console.rendering import PAGE_ROWS, assets, render
from ottla_console.watch import ClusterWatch

GROUPS = 10_000
SHARED = {
    "csrf": "",
    "user": "",
    "logs_in": False,
    "logged_in": True,
    "read_only": False,
    "path": "/groups",
    "query": {},
    "here": "/groups",
}


class FakeAdmin:
    """A cluster whose groups are all behind. ``asked``: those whose lag was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.list_transactions = self.list_groups

    async def list_groups(self) -> dict[str, GroupListing]:
        names = (f"group-{number:05}" for number in range(GROUPS))
        return {name: GroupListing(name, "consumer", "Stable", "classic", 1) for name in names}

    async def group_lag(self, name: str) -> dict[TopicPartition, PartitionLag]:
        self.asked.append(name)
        return {TopicPartition("t", 0): PartitionLag(OffsetAndMetadata(1), 0, 9, 8, 2.0)}


async def test_a_page_is_bounded() -> None:
    admin: Any = FakeAdmin()
    watch = ClusterWatch(admin, 60.0)
    session: Any = SimpleNamespace(watch=watch, admin=admin)

    async def shown(**query: str) -> str:
        admin.asked.clear()
        view = await groups(SimpleNamespace(query=query), session)  # type: ignore[arg-type]
        return render(view, SHARED)

    try:
        page = await shown()
        assert admin.asked == [f"group-{number:05}" for number in range(PAGE_ROWS)]
        assert "page 1 of 200, 10,000 in all" in page
        assert len(page) + sum(map(len, assets().files.values())) < 100_000
        assert await shown() == page
        assert admin.asked == []  # they are known for a while
        page = await shown(page="999999")
        assert "page 200 of 200" in page
        assert admin.asked[-1] == "group-09999"
        assert len(admin.asked) == PAGE_ROWS
        page = await shown(q="GROUP-0999")
        assert admin.asked == []
        assert page.count('<th scope="row">') == 10
        # What is kept of them has a bound, too.
        for number in range(1, 60):
            await shown(page=str(number))
        assert len(watch.histories) == len(watch.traces) <= 2_000
        assert len(watch._lags) <= 2_000
    finally:
        await watch.close()
