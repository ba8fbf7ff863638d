"""One lock for a zoolet daemon, Curator and kazoo: kazoo_mixed.py HOSTS PATH [TIMES]

Unmodified kazoo ignores the znodes of Curator, and Curator ignores kazoo's: on one path both would
hold the lock. If all three use Curator's names, all participants stand in one line. In the daemon:

    Lock::new(session, path!("/locks/valve-7")).naming(Naming::Curator)

In Curator: new InterProcessMutex(client, "/locks/valve-7").
"""

import sys

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.recipe.lock import Lock
from kazoo.retry import KazooRetry


class MixedLock(Lock):
    """A lock that Curator's InterProcessMutex and zoolet's Naming::Curator share."""

    # The text between the contender's own part of the name and the number, and the texts that mark
    # the contenders to wait for.
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]

    def token(self):
        """The fencing token; None once the lock is lost. The resource refuses smaller tokens."""
        stat = self.client.exists(f"{self.path}/{self.node}")
        return None if stat is None or stat.ephemeralOwner != self.client.client_id[0] else stat.czxid


def main():
    hosts, path, times = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["1"])[0])
    # kazoo reconnects for as long as it takes.
    client = KazooClient(hosts, timeout=10, connection_retry=KazooRetry(max_tries=-1), command_retry=KazooRetry(max_tries=-1))
    # SUSPENDED: may still hold the lock. LOST: does not hold it, and another participant may.
    client.add_listener(lambda state: print("lock lost") if state == KazooState.LOST else None)
    client.start(timeout=30)
    for _ in range(times):
        lock = MixedLock(client, path, "kazoo")
        with lock:
            print(f"held with token {lock.token()}", flush=True)
    client.stop()
    client.close()


if __name__ == "__main__":
    main()
