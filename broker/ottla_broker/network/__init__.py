"""Acceptors, processors and connections: the only module of the broker that touches sockets.

Each listener has an acceptor coroutine, which deals connections out to its processors; a processor owns its connections
for life. A connection is a raw non-blocking socket with a callback on the event loop. It cuts what it receives into
frames, hands each frame to a :class:`~ottla_broker.network.service.Service`, and sends the response in the same turn
if it can. The requests of one connection are answered in their order.

Reading order: ``acceptor.py``, ``connection.py`` with ``reader.py``, ``answers.py``, ``writer.py`` and ``holds.py``
(reasons not to read), ``large_frame.py`` and ``request_memory.py`` (its bound), ``streamed_part.py``, ``backlog.py``;
``tls_handshake.py`` and ``tls_socket.py``; ``peer.py`` opens connections to other brokers.

- Bytes go into a scratch buffer that connections share; an idle connection holds no buffer.
- Bytes that a socket doesn't take wait, and nothing more is read from that client meanwhile: the back-pressure.
- Measured: raw sockets with ``add_reader``, answered inline, make 57,000 round trips a second, ``BufferedProtocol``
  36,000, a coroutine per connection 20,000. Slices of files up to 16 KiB are read and sent with the bytes around
  them: 4 µs instead of 9.

To change

- whose requests come next when many wait: ``network/reader.py`` ``on_readable``, which asks ``network/backlog.py``
  ``admit``; the turns of connections that wait: ``_turn``; turns of clients: ``client_queue.py`` ``ClientQueue``
- limits of connections and request bytes: ``network/connection_quotas.py``, ``network/connection_rates.py``,
  ``network/request_memory.py``; replication: ``replica/replication_quota.py``
- a TLS handshake, its limits: ``network/tls_handshake.py`` ``Handshake``; whose handshake or login comes next:
  ``client_threads.py`` ``ClientThreads``; key stores: ``network/tls_settings.py`` ``TlsSettings``; what a client can
  do after the handshake: ``network/tls_socket.py`` ``TlsSocket``, ``network/openssl.py`` ``clear_auto_retry``
"""
