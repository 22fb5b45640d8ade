"""What the event loop adds to the protocol, once for broker, client and pipeline: the only I/O of this package.

``connection.py`` is an exchange on a socket, with deadlines and logins; ``ottla_client/connection.py`` and
``ottla_broker/network/peer.py`` open it. HTTP, by h11, has one client and one server of pages.
Callers pass in clocks and logs.
"""
