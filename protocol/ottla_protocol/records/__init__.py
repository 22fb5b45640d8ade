"""Record batches of format 2, and the message sets before them.

``batch`` has the headers of batches, ``record`` their records, ``columns`` whole batches as columns, ``compression``
the codecs, ``control`` transaction markers, and ``crc`` the checksum. ``message_set`` has formats 0 and 1; ``formats``
reads any of the three. Import from these modules: a broker's hot path needs only ``batch`` and ``crc``.

To change

- the loops over records: ``ottla_protocol/records/_records.c``; in Python, if it isn't compiled:
  ``ottla_protocol/records/scan.py``
- how any of these loops reads a record: ``ottla_protocol/records/record.h``, in Python
  ``ottla_protocol/records/scan.py`` ``read_record``; a batch's header: ``ottla_protocol/records/batch.h``
- which compressed frames are accepted: ``ottla_protocol/records/frames.py``
"""
