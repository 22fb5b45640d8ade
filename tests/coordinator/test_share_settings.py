"""The settings of share groups, which are computed once for each change of their configs."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share.settings import KeptSettings


def test_settings_are_computed_once_for_each_change() -> None:
    computed: list[dict[str, str]] = []

    def compute(own: Mapping[str, str]) -> ShareSettings:
        computed.append(dict(own))
        return ShareSettings(lock_ms=int(own.get("lock", "1")))

    configs: dict[str, Mapping[str, str]] = {}
    settings_of = KeptSettings(configs, compute)
    assert [settings_of(group).lock_ms for group in ("a", "b", "a")] == [1, 1, 1]
    configs["a"] = {"lock": "2"}
    assert [settings_of(group).lock_ms for group in ("a", "b", "a")] == [2, 1, 2]
    configs["a"] = {"lock": "3"}
    assert [settings_of(group).lock_ms for group in ("a", "b", "a")] == [3, 1, 3]
    del configs["a"]
    assert [settings_of(group).lock_ms for group in ("a", "b", "a")] == [1, 1, 1]
    assert computed == [{}, {"lock": "2"}, {"lock": "3"}]
