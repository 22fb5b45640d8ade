"""Consumer groups: members, their assignors, and the offsets that groups commit."""

from ..requests.group_offsets import Membership as Membership
from .assignors import Assignor as Assignor
from .assignors import assignors_named as assignors_named
from .machine import State as State
from .member import GroupMember as GroupMember
from .offsets import OffsetsClient as OffsetsClient
from .settings import MemberCallbacks as MemberCallbacks
from .settings import MemberSettings as MemberSettings
