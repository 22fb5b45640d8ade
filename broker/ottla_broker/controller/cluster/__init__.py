"""The controller of a cluster: one broker decides who leads what, and tells the others."""
