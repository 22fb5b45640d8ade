"""Record batches of format 2: ``batch`` their headers, ``record`` what is in them, ``columns`` the same for whole
batches at once, ``compression`` the codecs, ``control`` transaction markers, ``crc`` the checksum.

Import from the modules: a broker's hot path needs ``batch`` and ``crc`` alone.
"""
