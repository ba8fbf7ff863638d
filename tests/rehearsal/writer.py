"""writer.py HOSTS STOP: creates znodes until the file STOP exists; then checks each server's copy.

Each of three clients prefers another server, creates znodes one after another and does not retry.
Prints the kinds of failures. Exit code 1 means that an acknowledged create is missing, a session
was lost, or an error other than ConnectionLoss occurred. The last line is `N passed, N failed`.
"""

import collections
import logging
import pathlib
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry


def retry():
    return KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=60)


class Writer(threading.Thread):
    def __init__(self, hosts, number, stop):
        super().__init__(daemon=True)
        self.number, self.stop = number, stop
        self.client = KazooClient(hosts=",".join(hosts[number:] + hosts[:number]), randomize_hosts=False, timeout=20, connection_retry=retry())
        self.acknowledged, self.failed, self.lost, self.longest = set(), collections.Counter(), 0, 0.0
        self.client.add_listener(self.heard)
        self.client.start(timeout=30)

    def heard(self, state):
        self.lost += state == KazooState.LOST and not self.stop.exists()

    def run(self):
        count, last = 0, time.monotonic()
        while not self.stop.exists():
            count += 1
            path = f"/writer/{self.number}-{count}"
            try:
                self.client.create(path, path.encode())
                self.acknowledged.add(path)
                self.longest, last = max(self.longest, time.monotonic() - last), time.monotonic()
            except Exception as error:  # noqa: BLE001 - every kind is counted
                self.failed[type(error).__name__] += 1
                time.sleep(0.02)


def main():
    logging.disable()
    hosts, stop = sys.argv[1].split(","), pathlib.Path(sys.argv[2])
    writers = [Writer(hosts, number, stop) for number in range(len(hosts))]
    writers[0].client.retry(writers[0].client.ensure_path, "/writer")
    for writer in writers:
        writer.start()
    print("writing", flush=True)
    for writer in writers:
        writer.join()
    acknowledged, failed = set().union(*(writer.acknowledged for writer in writers)), sum((writer.failed for writer in writers), collections.Counter())
    wrong = [f"a session was lost by client {writer.number}" for writer in writers if writer.lost]
    wrong += [f"{count} calls failed with {kind}" for kind, count in failed.items() if kind != ConnectionLoss.__name__]
    wrong += [f"client {writer.number} wrote nothing" for writer in writers if not writer.acknowledged]
    for host in hosts:
        client = KazooClient(hosts=host, timeout=20)
        client.start(timeout=30)
        client.sync("/writer")
        there = {f"/writer/{name}" for name in client.get_children("/writer")}
        wrong += [f"{path}, which was acknowledged, is not on {host}" for path in sorted(acknowledged - there)]
        wrong += [f"{path} has something else on {host}" for path in sorted(there)[::50] if client.get(path)[0] != path.encode()]
        client.stop()
    longest = max(writer.longest for writer in writers)
    print(f"{len(acknowledged)} creates acknowledged, each is on every server; {sum(failed.values())} failed {dict(failed)}; no session lost; longest without an acknowledgement {longest:.1f} s"
          if not wrong else "\n".join(wrong[:20]))
    print(f"{1 - bool(wrong)} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


main()
