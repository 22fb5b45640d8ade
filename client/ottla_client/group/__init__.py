"""Consumer groups: members, assignors, and committed offsets."""

from .assignors import Assignor as Assignor
from .assignors import assignors_named as assignors_named
from .consumer_member import ConsumerProtocolMember as ConsumerProtocolMember
from .member import GroupMember as GroupMember
from .member_state import MemberState as MemberState
from .offsets import OffsetsClient as OffsetsClient
from .settings import MemberCallbacks as MemberCallbacks
from .settings import MemberSettings as MemberSettings
from .share_member import ShareMember as ShareMember
