"""Acceptors, processors and connections: the only module of the broker that touches sockets.

Each listener has an acceptor coroutine, which deals connections out to its processors; a processor owns its connections
for life. A connection is a raw non-blocking socket with a callback on the event loop. It cuts what it receives into
frames, hands each frame to a :class:`~ottla_broker.network.service.Service`, and sends the response in the same turn
if it can. The requests of one connection are answered in their order.
"""
