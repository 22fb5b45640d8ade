"""The consumer of share groups (KIP-932): records shared by more consumers than partitions, acknowledged one by one."""

from .acknowledgements import AcknowledgeType as AcknowledgeType
from .consumer import ShareConsumer as ShareConsumer
