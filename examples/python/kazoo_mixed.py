"""One lock for a zoolet daemon, Curator and kazoo: kazoo_mixed.py HOSTS PATH [TIMES]

kazoo as it is does not see the znodes of Curator, nor does Curator see kazoo's: on one path both would hold. With Curator's names for all three
there is one line in which everybody stands. The daemon's side:

    Lock::new(session, path!("/locks/valve-7")).naming(Naming::Curator)

and Curator's: new InterProcessMutex(client, "/locks/valve-7").
"""

import sys

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState
from kazoo.recipe.lock import Lock
from kazoo.retry import KazooRetry


class MixedLock(Lock):
    """A lock that Curator's InterProcessMutex and zoolet's Naming::Curator share."""

    # What stands between the contender's own part of the name and the number, and before whose numbers it waits.
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]

    def token(self):
        """The fencing token: where it is written, a smaller one is refused. None when the lock is not held any more."""
        stat = self.client.exists(f"{self.path}/{self.node}")
        return None if stat is None or stat.ephemeralOwner != self.client.client_id[0] else stat.czxid


def main():
    hosts, path, times = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["1"])[0])
    # A connection that is lost is made again for as long as it takes.
    client = KazooClient(hosts, timeout=10, connection_retry=KazooRetry(max_tries=-1), command_retry=KazooRetry(max_tries=-1))
    # SUSPENDED: may still hold. LOST: does not hold, somebody else may.
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
