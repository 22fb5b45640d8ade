"""A broker as a member of a cluster: its session with ZooKeeper, and what the controller tells it."""
