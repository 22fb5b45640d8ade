"""The coordination store: small versioned nodes, embedded in one journal or in ZooKeeper.

``api.py`` is the interface: create, get, put-if-version, delete, children, watch, ephemeral, transactions. The
embedded store and ``zookeeper.py`` (kazoo) are held to the same behaviour by the same tests. ``keys.py`` has every
node's path and contents, in Kafka's JSON.

To change

- what a node in ZooKeeper holds: ``store/keys.py``
"""
