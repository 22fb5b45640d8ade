"""How :mod:`ottla_broker.handlers.fetch` reads: for consumers, for followers, and for clients of old formats.

``fetch_request.py`` reads for consumers, ``follower_fetch.py`` for followers, ``old_fetch.py`` converts for clients
older than 0.11. A fetch with too little to read waits in its partitions, and the high watermark wakes it. Consumers
see what is below the high watermark; with isolation.level=read_committed, what is below the last stable offset (LSO).

To change

- what a fetch returns, and how long it waits: ``handlers/fetch.py`` ``handle`` → ``fetch/fetch_request.py`` ``Fetch``
  → ``log/reader.py`` ``LogReader``; ``replica/delayed_fetch.py`` ``DelayedFetch``; for clients older than 0.11
  ``fetch/old_fetch.py`` → ``log/down_conversion.py`` ``DownConversion``
- how far read_committed reads, the last stable offset (LSO): ``fetch/fetch_request.py`` ``_read_partition``; the
  number: ``replica/high_watermark.py`` ``HighWatermark``
"""
