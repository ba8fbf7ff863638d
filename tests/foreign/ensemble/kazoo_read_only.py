"""kazoo_read_only.py SERVER_COMMAND: reads with kazoo at a server that has lost its site.

Two of three servers end. A stock client with read_only=True then reads at the third, its writes
are refused, and it writes again when the others are back. A client without read_only does not get
in. Ends with `N passed, N failed`.
"""

import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from servers import PATIENCE_S, Ensemble


class Checks:
    """Counts what is as it should be."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def that(self, claim, is_so):
        if is_so:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {claim}")


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def is_refused(call):
    try:
        call()
    except NotReadOnlyCallError:
        return True
    return False


def main():
    checks = Checks()
    with Ensemble(sys.argv[1], int(os.environ.get("PORT", "22400")), ["readonlymode.enabled=true"]) as ensemble:
        left, *others = ensemble.servers
        host = f"127.0.0.1:{left.port}"
        writer = KazooClient(hosts=host)
        writer.start(PATIENCE_S)
        writer.retry(writer.ensure_path, "/conf")
        writer.retry(writer.set, "/conf", b"1")
        writer.stop()
        checks.that("a server with a leader says rw", left.word("isro") == "rw")
        for server in others:
            server.kill()
        checks.that("a server without a leader says ro", wait_for(lambda: left.word("isro") == "ro"))

        reader = KazooClient(hosts=host, read_only=True, timeout=10)
        reader.start(PATIENCE_S)
        checks.that("the client knows that it may only read", reader.client_state == KeeperState.CONNECTED_RO)
        checks.that("it reads", reader.get("/conf")[0] == b"1")
        fired = []
        checks.that("it sets a watch", reader.exists("/later", watch=fired.append) is None)
        checks.that("its write is refused", is_refused(lambda: reader.set("/conf", b"2")))
        checks.that("its create is refused", is_refused(lambda: reader.create("/e", ephemeral=True)))
        lines = left.word("srvr").splitlines()
        checks.that("srvr says so", "READ-ONLY mode; serving only read-only clients" in lines)
        checks.that("srvr says how old the state is", any(line.startswith("State age: ") for line in lines))
        checks.that("mntr says so", "zk_server_state\tread-only" in left.word("mntr").splitlines())

        plain = KazooClient(hosts=host, timeout=10)
        try:
            plain.start(5)
            checks.that("a client that wants to write does not get in", False)
        except KazooTimeoutError:
            checks.that("a client that wants to write does not get in", True)
        plain.stop()
        plain.close()

        for server in others:
            server.start()
        ensemble.leader()
        writes = wait_for(lambda: reader.client_state == KeeperState.CONNECTED)
        checks.that("it is let in again when there is a leader", writes)
        # A retried set may count twice.
        checks.that("it writes then", writes and reader.retry(reader.set, "/conf", b"3").version > 1)
        reader.stop()
        reader.close()
        if checks.failed:
            ensemble.tell_last_words()
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
