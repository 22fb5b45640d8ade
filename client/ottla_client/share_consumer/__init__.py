"""The consumer of share groups (KIP-932): records shared by more consumers than partitions, acknowledged one by one.

To change

- what becomes of the records that a share consumer has: ``share_consumer/acknowledgements.py`` ``HeldRecords``; of
  those that it can't read: ``share_consumer/acquisition.py`` ``Acquisition``; how acknowledgements get to the broker,
  and when they are void: ``share_consumer/node_session.py`` ``NodeSession``
"""

from .acknowledgements import AcknowledgeType as AcknowledgeType
from .consumer import ShareConsumer as ShareConsumer
