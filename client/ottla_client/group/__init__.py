"""Consumer groups: members, assignors, and committed offsets.

To change

- what an error means to a group member: ``group/member_state.py`` ``REACTIONS``; where the broker assigns:
  ``group/consumer_member_state.py`` ``REACTIONS``, ``TRANSITIONS``
"""

from .assignors import Assignor as Assignor
from .assignors import assignors_named as assignors_named
from .consumer_member import ConsumerProtocolMember as ConsumerProtocolMember
from .member import GroupMember as GroupMember
from .member_state import MemberState as MemberState
from .offsets import OffsetsClient as OffsetsClient
from .settings import MemberCallbacks as MemberCallbacks
from .settings import MemberSettings as MemberSettings
from .share_member import ShareMember as ShareMember
