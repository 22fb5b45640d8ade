"""Decides on topics, partitions, configs, ACLs, quotas and tokens.

``api.py`` is what handlers ask of a controller: ``standalone.py`` decides alone, ``cluster/`` for a cluster. Both
share ``new_topics.py``, ``placement.py``, ``validation.py`` (what a topic needs and may be), ``config_admin.py``,
``producer_ids.py`` and ``bootstrap.py`` (paths and the cluster's id in the store).

To change

- where replicas of a new topic go: ``controller/placement.py`` ``place``
- which features the cluster has finalized (KIP-584): ``controller/features.py`` ``FeatureAdmin``, kept in
  ``store/keys.py`` ``FeatureNode``; the client's view: ``ottla_client/cluster/cluster.py`` ``features``; changes:
  ``ottla_client/admin/features.py`` ``FeatureCalls``
"""
