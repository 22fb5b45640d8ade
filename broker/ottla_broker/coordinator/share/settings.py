"""Settings of share groups' records, from the broker's and a group's own configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla_broker.config.group_configs import ShareSettings

SettingsOf = Callable[[str], ShareSettings]
"""The settings of a group by its id."""

Configs = Mapping[str, str]


class KeptSettings:
    """The settings of groups by their ids, each computed once: every fetch and every acknowledgement asks for them.

    ``configs`` has the groups' own configs. A change puts another mapping in the place of the group's.
    """

    __slots__ = ("_compute", "_configs", "_default", "_kept")

    def __init__(self, configs: Mapping[str, Configs], compute: Callable[[Configs], ShareSettings]) -> None:
        self._configs = configs
        self._compute = compute
        self._default: ShareSettings | None = None
        # By group: the configs that the settings were computed from, and these.
        self._kept: dict[str, tuple[Configs, ShareSettings]] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        own = self._configs.get(group_id)
        if own is None:
            self._kept.pop(group_id, None)
            if self._default is None:
                self._default = self._compute({})
            return self._default
        kept = self._kept.get(group_id)
        if kept is None or kept[0] is not own:
            kept = self._kept[group_id] = own, self._compute(own)
        return kept[1]
