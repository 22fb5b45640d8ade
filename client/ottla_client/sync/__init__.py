"""The client for code without asyncio: Producer, the consumers and Admin with the methods of the async classes.

::

    from ottla_client.sync import Producer

    with Producer("127.0.0.1:9092") as producer:
        producer.send("flights", b"...", key=b"EWR")

Each object has an event loop in a background thread. Objects that are still open when the interpreter ends are closed.

To change

- when the producer blocks (max_block_ms): ``sync/send_queue.py`` ``_wait_for_room``
"""

from .admin import Admin as Admin
from .consumer import Consumer as Consumer
from .coordinated_consumer import CoordinatedConsumer as CoordinatedConsumer
from .producer import BatchDelivery as BatchDelivery
from .producer import Producer as Producer
from .producer import Transaction as Transaction
from .send_queue import Delivery as Delivery
from .share_consumer import ShareConsumer as ShareConsumer
from .simple_consumer import SimpleConsumer as SimpleConsumer
from .streams_consumer import Stream as Stream
from .zookeeper_consumer import ZookeeperConsumer as ZookeeperConsumer
