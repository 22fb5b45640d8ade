"""One module per API: its request and response, for all versions (the notation: ``schema.py``).

``metadata_records.py`` and modules like it describe records of internal topics.
"""
