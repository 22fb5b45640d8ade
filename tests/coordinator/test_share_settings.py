"""The settings of share groups: read from their configs, once for each change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.group_configs import ShareSettings, check_group_config, share_settings
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


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("share.auto.offset.reset", " earliest", ShareSettings(offset_reset="earliest")),
        ("share.auto.offset.reset", "by_duration:PT1S ", ShareSettings(offset_reset=1000)),
        ("share.isolation.level", "read_committed ", ShareSettings(read_committed=True)),
        ("share.record.lock.duration.ms", " 1000 ", ShareSettings(lock_ms=1000)),
        ("share.key.ordered", " TRUE ", ShareSettings(key_ordered=True)),
    ],
)
def test_blanks_around_a_value_are_ignored(name: str, text: str, expected: ShareSettings) -> None:
    check_group_config(name, text)
    assert share_settings(BrokerConfig.from_properties({}), {name: text}) == expected
