"""Record batches of format 2.

``batch`` has their headers, ``record`` their records, ``columns`` whole batches as columns, ``compression`` the codecs,
``control`` transaction markers, and ``crc`` the checksum. Import from these modules: a broker's hot path needs only
``batch`` and ``crc``.
"""
