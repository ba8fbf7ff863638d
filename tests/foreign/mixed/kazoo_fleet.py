"""kazoo_fleet.py PROCESS HOSTS JOURNAL: kazoo's contenders, until a line arrives on stdin.

They take part in the fleets `kazoo` (stock) and `all` (with Curator's names).
"""

import logging
import os
import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, SessionExpiredError
from kazoo.protocol.states import KazooState
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from kazoo.retry import KazooRetry

SESSION_S = 8
PROCESS, HOSTS, JOURNAL = sys.argv[1:4]
journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND)
over = threading.Event()


def tell(what, *words):
    os.write(journal, " ".join(map(str, (what, PROCESS, *words))).encode() + b"\n")


class CuratorLock(Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-lock-", ["-lock-"]


class CuratorReadLock(Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-__READ__", ["-__WRIT__"]


class CuratorWriteLock(Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-__WRIT__", ["-__READ__", "-__WRIT__"]


class CuratorLatch(Lock):
    _NODE_NAME, _EXCLUDE_NAMES = "-latch-", ["-latch-"]


def policy():
    return KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)


class Contender(threading.Thread):
    def __init__(self, name, turn):
        super().__init__()
        self.name_, self.turn, self.told = name, turn, None
        self.client = KazooClient(HOSTS, timeout=SESSION_S, connection_retry=policy(), command_retry=policy())
        self.client.add_listener(self.heard)
        self.client.start(timeout=60)

    def announce(self):
        client_id = self.client.client_id
        if client_id is not None and client_id[0] not in (0, self.told):
            self.told = client_id[0]
            tell("session", f"{self.told & (1 << 64) - 1:x}", client_id[1].hex())

    def heard(self, state):
        if state == KazooState.LOST and self.told is not None and not over.is_set():
            tell("lost", f"{self.told & (1 << 64) - 1:x}")

    def run(self):
        while not over.is_set():
            self.announce()
            try:
                self.turn(self)
            except (KazooException, AssertionError) as error:
                tell("failed", self.name_, repr(error))
                time.sleep(0.1)
        self.client.stop()
        self.client.close()

    def inside(self, lock, mode):
        """Records a turn under the owner that the server shows; no znode means an ended session."""
        stat = self.client.retry(self.client.exists, f"{lock.path}/{lock.node}")
        if stat is None:
            return
        self.announce()
        who = self.name_, mode, f"{stat.ephemeralOwner & (1 << 64) - 1:x}", stat.czxid
        tell("enter", *who)
        time.sleep(0.002)
        tell("leave", *who)


def locking(*kinds):
    """Returns a turn that takes one of these locks at random; `s` is shared, `x` is exclusive."""

    def turn(contender):
        kind, mode = random.choice(kinds)
        lock = kind(contender.client, f"/mixed/{contender.name_}", PROCESS)
        lock.acquire()
        try:
            contender.inside(lock, mode)
        finally:
            lock.release()

    return turn


def electing(kind):
    def turn(contender):
        election = Election(contender.client, f"/mixed/{contender.name_}", PROCESS)
        if kind is not None:
            election.lock = kind(contender.client, election.lock.path, PROCESS)
        election.run(contender.inside, election.lock, "x")

    return turn


def counting(contender):
    tell("adding", contender.name_)
    counter = contender.client.Counter(f"/mixed/{contender.name_}")
    counter += 1
    tell("added", contender.name_)
    time.sleep(0.005)


TURNS = {
    "kazoo/mutex": locking((Lock, "x")),
    "kazoo/read-write": locking((ReadLock, "s"), (ReadLock, "s"), (WriteLock, "x")),
    "kazoo/election": electing(None),
    "kazoo/counter": counting,
    "all/mutex": locking((CuratorLock, "x")),
    "all/read-write": locking((CuratorReadLock, "s"), (CuratorReadLock, "s"), (CuratorWriteLock, "x")),
    "all/election": electing(CuratorLatch),
}


def main():
    logging.basicConfig(level=logging.CRITICAL)
    contenders = [Contender(name, turn) for name, turn in TURNS.items()]
    for contender in contenders:
        contender.start()
    sys.stdin.readline()
    over.set()
    for contender in contenders:
        contender.join()
    print("idle", flush=True)


main()
