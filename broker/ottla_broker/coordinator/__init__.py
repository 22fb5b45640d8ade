"""Coordinators: state machines that write each change to a partition of an internal topic.

``shard.py`` is what they have in common: load by replay; append, then answer; unload. ``group/`` has the groups of
all protocols on ``__consumer_offsets``, ``share/`` the records of share groups, ``transaction/`` the transactions,
``push/`` the coordinator designed in 2012. ``on_demand.py`` builds a coordinator when it is first needed,
``deadlines.py`` has its timers.

- A change is a record first. A request is answered when the high watermark has passed it; a commit is, too.
- The broker that leads a partition of the topic loads the state machines in it; no protocol of their own moves them.

To change

- where OffsetCommit 0 and OffsetFetch 0 keep offsets: ``coordinator/zookeeper_offsets.py`` ``ZooKeeperOffsets``
- what clients may have the broker remember: ``config/limit_keys.py`` ``LimitKeys``; groups:
  ``coordinator/group/admission.py`` ``Admission``; what members state: ``coordinator/group/metadata_limit.py``
  ``MetadataLimit``; producers: ``log/producer_state.py`` ``ProducerStates``, of all partitions
  ``log/producer_limit.py`` ``ProducerLimit``
- how groups with consumers in ZooKeeper are listed and described: ``coordinator/zookeeper_groups.py``
  ``ZooKeeperGroups``; which offsets commands show of them: ``ottla_cli/groups/places.py`` ``offsets_in_use``
- which group has consumers of another generation, and who is refused: ``coordinator/old_consumers.py``
  ``OldConsumers``, asked by ``coordinator/group/admission.py`` ``check_old_consumers``; other brokers' groups:
  ``cluster/group_holders.py`` ``GroupHolders``; in ZooKeeper alone: ``ottla_client/zookeeper_consumer/consumer.py``
  ``_check_group``; why: ``docs/decisions/0023``
"""
