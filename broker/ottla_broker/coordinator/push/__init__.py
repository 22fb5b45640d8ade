"""The consumer coordinator designed in 2012: it assigns partitions, and pushes its requests to the consumers.

What the design left open is settled in docs/decisions/0021.
"""
