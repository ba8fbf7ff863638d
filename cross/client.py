"""The kazoo client of smoke, exchange and scratch.

If this Python lacks kazoo, the script restarts in the virtual environment of cross/prepare.
"""

import logging
import os
import pathlib
import sys
import threading
import time

from verdict import check

try:
    from kazoo.client import KazooClient
except ImportError:
    target_directory = os.environ.get("CARGO_TARGET_DIR") or pathlib.Path(__file__).resolve().parents[1] / "target"
    python = pathlib.Path(target_directory) / "cross-venv/bin/python"
    if not python.exists() or sys.prefix != sys.base_prefix:
        sys.exit("cannot import kazoo; cross/prepare installs it")
    os.execv(python, [str(python), *sys.argv])

# These tests end connections on purpose, so kazoo must not log it.
logging.getLogger("kazoo").setLevel(logging.CRITICAL + 1)

# Seconds; a program of another machine under QEMU is several times slower.
PATIENCE_S = 60


def work_of_a_client(client):
    changed = threading.Event()
    client.create("/door", b"closed")
    client.get("/door", watch=lambda event: changed.set())
    client.set("/door", b"open")
    check(changed.wait(PATIENCE_S), "a watch fires")
    data, stat = client.get("/door")
    check((data, stat.version) == (b"open", 1), "a get returns the data that was set")
    client.create("/big", bytes(500_000))
    check(client.get("/big")[0] == bytes(500_000), "a znode keeps half a megabyte")
    at = time.monotonic()
    made = [client.create_async("/job-", str(number).encode(), sequence=True) for number in range(1000)]
    names = [each.get(timeout=PATIENCE_S) for each in made]
    took = time.monotonic() - at
    check(names == [f"/job-{number:010}" for number in range(2, 1002)], f"1,000 sequential creates, pipelined: {1000 / took:,.0f} a second")
