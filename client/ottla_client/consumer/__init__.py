"""The consumer: records of topics or partitions, alone or in a group, one by one, as lists, or as Arrow tables.

An engine puts together ``fetcher.py`` (one fetch in flight to each broker), ``buffer.py``, ``positions.py`` (five
stages of a partition), the resolver, the membership, ``offset_commits.py`` and ``poll_gate.py``, which keeps a
rebalance from revoking partitions while the application has their records.

- The buffer keeps responses as bytes and decodes on demand. Nothing is awaited between deciding and handing out: a
  cancelled call loses no record.
- ``offset_commits.py`` alone decides what is committed. Asking for records means that those before are processed.

To change

- which offsets a consumer commits: ``consumer/offset_commits.py`` ``OffsetCommits`` ``processed``, ``handed_out``,
  from ``consumer/buffer.py`` ``processed_offset``
- what a consumer decodes at once, and what of a record or batch it refuses: ``consumer/records.py`` ``RUN_BYTES``; a
  batch of very many records: ``requests/large_batch.py`` ``LargeBatch``, ``MAX_HEADERS``
- where partitions begin that a topic gets while a consumer is subscribed: ``consumer/new_partitions.py``
  ``NewPartitions``
"""

from .consumer import Consumer as Consumer
from .listener import RebalanceListener as RebalanceListener
