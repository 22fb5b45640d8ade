"""Sockets: acceptors, processors and connections. Nothing else in the broker touches one.

An acceptor coroutine a listener takes connections and deals them out to N processors; a processor owns its share of
them for life. A connection is a raw non-blocking socket with a callback on the event loop: what arrives is cut into
frames there and then, each frame is handed to a :class:`~ottla_broker.network.service.Service`, and what it answers is
sent in the same turn where that is possible. Requests of one connection are answered in their order.
"""
