"""Requests that several parts of the client send: one module per API, below admin, consumer and group.

Each module builds its request for the version that a broker speaks, and reads the response into the client's values.
`driver` finds the broker for each item and retries.
"""
