"""A broker as a member of a cluster: its session with ZooKeeper, and the controller's requests to it."""
