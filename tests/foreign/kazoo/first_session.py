"""first_session.py HOST:PORT: checks the README: a kazoo session creates, watches and reads."""

import logging
import sys
import threading

from kazoo.client import KazooClient

logging.basicConfig(level=logging.WARNING)
client = KazooClient(hosts=sys.argv[1], timeout=10)
client.start(timeout=20)
changed = threading.Event()
client.create("/first", b"created")
data, stat = client.get("/first", watch=lambda event: changed.set())
assert (data, stat.version) == (b"created", 0), (data, stat)
client.set("/first", b"changed")
assert changed.wait(20), "the watch did not fire"
assert client.get("/first")[0] == b"changed"
assert "first" in client.get_children("/")
client.delete("/first")
client.stop()
client.close()
print("a kazoo session created, watched and read")
