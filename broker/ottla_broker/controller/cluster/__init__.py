"""The controller of a cluster: one broker elects the partitions' leaders and informs the others."""
