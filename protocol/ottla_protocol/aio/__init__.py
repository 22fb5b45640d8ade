"""What the event loop adds to the protocol, once for broker, client and pipeline: the only I/O of this package.

Clocks and logs are given by who uses it.
"""
