"""Decides which members may enter a group: by this broker's limits, and unless others use the group already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ottla_broker.clock import Clock
from ottla_broker.coordinator.group.group import CLASSIC_TYPE, Group, metadata_bytes
from ottla_broker.coordinator.group.group_shard import AnyGroup
from ottla_broker.coordinator.group.membership import JoinRequest
from ottla_broker.coordinator.group.metadata_limit import MEMBER, MetadataLimit, names_bytes
from ottla_broker.coordinator.group.modern.consumer_group import CONSUMER_TYPE
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.share.group import SHARE_TYPE, ShareGroup
from ottla_broker.coordinator.old_consumers import OldConsumers, members_of
from ottla_broker.coordinator.refusals import Refusals
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()


class Client(Protocol):
    """The client that asks to be a member."""

    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


class Admission:
    """Owned by the loop thread. The groups are the coordinator's.

    Attributes:
        metadata_limit: what the members of all groups may state.
        old_consumers: knows the consumers of other generations, if there can be any.
    """

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        groups: Mapping[str, AnyGroup],
        share_groups: Mapping[str, ShareGroup],
    ) -> None:
        self._most_groups = settings.max_groups
        self._groups = groups
        self._share_groups = share_groups
        self._refusals = Refusals(clock)
        self.metadata_limit = MetadataLimit(settings.max_metadata_bytes, self._refusals)
        self.old_consumers: OldConsumers | None = None

    def refuses_group(self, group: AnyGroup | None) -> bool:
        """Whether a group that isn't there yet would be one too many; that is logged."""
        if group is not None:
            return False
        if len(self._groups) + len(self._share_groups) >= self._most_groups:
            self._refusals.log("group refused: there are as many as max.groups allows", self._most_groups)
            return True
        return self.metadata_limit.is_full()

    def check_group(self, group: AnyGroup | None) -> None:
        """Raise KafkaError if a group that isn't there yet would be one too many."""
        if self.refuses_group(group):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"This broker has {self._most_groups} groups, the most that max.groups allows, or as much of their"
                " members' metadata as max.group.metadata.bytes allows.",
            )

    def refuses_member(self, group: AnyGroup | None, request: JoinRequest) -> bool:
        """Whether a classic member would make its group, or all groups, exceed a limit; that is logged."""
        in_group = before = 0
        if group is None:
            if request.member_id:
                return False  # it is in no group
            if self.refuses_group(group):
                return True
        elif isinstance(group, Group):
            known = group.members.get(request.member_id)
            in_group = group.stated.bytes
            before = 0 if known is None else known.counted - len(known.assignment)
        elif not group.is_empty:
            return False  # looked at when it is known what the member becomes
        names = names_bytes(request.member_id, request.instance_id, request.client_id, request.client_host)
        try:
            self.metadata_limit.check(in_group, before, MEMBER + names + metadata_bytes(request.protocols))
        except KafkaError:
            return True
        return False

    def holder(self, group_id: str) -> str | None:
        """Return what holds a group on this broker: its members and their protocol. None: it has no members here."""
        group = self._find(group_id)
        return (
            members_of(len(group.members), _type_of(group)) if group is not None and group.members else None
        )

    def check_old_consumers(self, group_id: str, proceed: Callable[[str | None], None]) -> None:
        """Call ``proceed`` with what holds a group without members here: consumers that this coordinator doesn't know.

        A group with members here is theirs: those who come later are refused.
        """
        group = self._groups.get(group_id)
        if self.old_consumers is None or (group is not None and group.members):
            proceed(None)
        else:
            self.old_consumers.ask(group_id, proceed)

    def held(self, group_id: str, holder: str, client: Client, protocol: str) -> KafkaError:
        """Log that a member is refused, and return the error: one after which clients give up, and show its text."""
        _log_refusal(group_id, holder, client, protocol)
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Group {group_id} is held by {holder}; close them, or use another group.",
        )

    def other_type(self, group_id: str, client: Client, protocol: str) -> KafkaError:
        """Log that a member is refused because its group is of another type; the error says what the group is."""
        holder = self.holder(group_id)
        if holder is None:
            group = self._find(group_id)
            assert group is not None
            holder = (
                f"the {_type_of(group)} protocol, though it has no members: delete it, or use another group"
            )
        else:
            holder += "; close them, or use another group"
        _log_refusal(group_id, holder, client, protocol)
        return KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} is not a {protocol} group: it is held by {holder}.",
        )

    def _find(self, group_id: str) -> AnyGroup | ShareGroup | None:
        return self._share_groups.get(group_id) or self._groups.get(group_id)


def _type_of(group: AnyGroup | ShareGroup) -> str:
    if isinstance(group, Group):
        return CLASSIC_TYPE
    return SHARE_TYPE if isinstance(group, ShareGroup) else CONSUMER_TYPE


def _log_refusal(group_id: str, holder: str, client: Client, protocol: str) -> None:
    _log.warning(
        "a member was refused: its group is held by consumers of another generation",
        group=group_id,
        held_by=holder,
        client_id=client.client_id,
        client_host=client.client_host,
        protocol=protocol,
    )
