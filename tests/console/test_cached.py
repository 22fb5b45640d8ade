"""Results that pages share."""

from __future__ import annotations

from ottla_console.cached import Cached


async def test_waiting_for_another_call_does_not_keep_a_result_longer() -> None:
    calls: list[int] = []

    async def call() -> int:
        calls.append(len(calls))
        waiting.idle(1_000.0)
        return len(calls)

    waiting: Cached[int] = Cached(call, 0.0, 100.0)
    assert [await waiting.get(), await waiting.get()] == [1, 2]
