"""Kafka's wire protocol without I/O: messages, record batches, errors.

``schema.py`` compiles one class per message to an encoder and a decoder per version on first use; ``messages/`` has a
module per API, ``registry.py`` finds it, ``api_keys.py`` numbers it. ``records/`` has record batches, ``sasl/`` the
mechanisms. ``exchange.py`` is a connection's requesting side without its socket, ``fetch_session.py`` a fetch
session's, ``acls.py`` the decision by ACLs. Only ``aio/`` does I/O.

To change

- what counts as lag: ``ottla_protocol/lag.py``; looked up by ``ottla_broker/metrics/lag_reader.py`` ``LagReader``,
  ``ottla_client/requests/log_walk.py`` ``LogWalk``
"""
