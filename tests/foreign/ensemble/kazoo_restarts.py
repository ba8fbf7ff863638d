"""kazoo_restarts.py SERVER_COMMAND: restarts three servers in turn under load of kazoo clients.

The restarts are graceful or by kill -9. With kazoo's client.retry no call fails. Calls without
retry may fail with ConnectionLoss only. No session is lost, and the counters match the calls. Ends
with `N passed, N failed`.
"""

import collections
import logging
import os
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from servers import Ensemble

CLIENTS = 4
ROUNDS = 2
# Minimum number of calls of each client between two restarts.
PROGRESS = 50


def retry_policy():
    """Returns a policy that outlasts any restart."""
    return KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=60)


class Caller(threading.Thread):
    """A client that sets, reads, creates and deletes until it is stopped."""

    def __init__(self, hosts, number, retries):
        super().__init__(daemon=True)
        self.number, self.retries = number, retries
        self.client = KazooClient(hosts=hosts, timeout=20, connection_retry=retry_policy(), command_retry=retry_policy())
        self.failures = collections.Counter()
        self.calls, self.lost, self.over = 0, 0, threading.Event()
        self.client.add_listener(self.heard)
        self.path = f"/restarts/{'retry' if retries else 'plain'}-{number}"

    def heard(self, state):
        if state == KazooState.LOST and not self.over.is_set():
            self.lost += 1

    def call(self, function, *arguments):
        try:
            result = self.client.retry(function, *arguments) if self.retries else function(*arguments)
        except Exception as error:  # noqa: BLE001 - every kind is counted
            self.failures[type(error).__name__] += 1
            if self.retries or not isinstance(error, ConnectionLoss):
                traceback.print_exc()
            time.sleep(0.02)
            return None
        self.calls += 1
        return result

    def run(self):
        client, value = self.client, 0
        while not self.over.is_set():
            value += 1
            self.call(client.set, self.path, b"%d" % value)
            found = self.call(client.get, self.path)
            # Writes are sequential and retried until they succeed, so a read must return the last
            # value.
            if self.retries and found is not None and found[0] != b"%d" % value:
                self.failures[f"read {found[0]} after {value}"] += 1
            self.call(client.exists, self.path + "/none")
            self.call(client.get_children, "/restarts")

    def start(self):
        self.client.start(timeout=60)
        self.client.retry(self.client.ensure_path, self.path)
        super().start()

    def finish(self):
        self.over.set()
        self.join(60)
        self.client.stop()
        self.client.close()
        return not self.is_alive()


def wait_for_progress(callers):
    targets = {caller: caller.calls + PROGRESS for caller in callers}
    deadline = time.monotonic() + 60
    while any(caller.calls < target for caller, target in targets.items()):
        if time.monotonic() > deadline:
            raise TimeoutError("clients get nowhere")
        time.sleep(0.05)


def restart_all(ensemble, callers, end):
    for _ in range(ROUNDS):
        for server in ensemble.in_turn():
            wait_for_progress(callers)
            end(server)
            server.start()
            ensemble.wait_until_serving()
    wait_for_progress(callers)


def rolling(ensemble, end):
    """Returns the failures."""
    callers = [Caller(ensemble.hosts, number, retries) for number in range(CLIENTS) for retries in (True, False)]
    for caller in callers:
        caller.start()
    try:
        restart_all(ensemble, callers, end)
    finally:
        ended = [caller.finish() for caller in callers]
    wrong = []
    for caller in callers:
        allowed = set() if caller.retries else {"ConnectionLoss"}
        failures = {name: count for name, count in caller.failures.items() if name not in allowed}
        if failures:
            wrong.append(f"{caller.path}: {failures}")
        if caller.lost:
            wrong.append(f"{caller.path}: its session was lost {caller.lost} times")
    if not all(ended):
        wrong.append("a client hangs")
    losses = sum(caller.failures["ConnectionLoss"] for caller in callers if not caller.retries)
    print(f"{sum(caller.calls for caller in callers)} calls; {losses} plain ones saw ConnectionLoss")
    return wrong


def main():
    logging.basicConfig(level=logging.CRITICAL)
    trials = {
        "a graceful rolling restart": lambda server: server.stop(),
        "a rolling kill -9": lambda server: server.kill(),
    }
    passed = failed = 0
    with Ensemble(sys.argv[1], int(os.environ.get("PORT", "22400"))) as ensemble:
        for name, end in trials.items():
            wrong = rolling(ensemble, end)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            print(f"{'FAILED' if wrong else 'ok'}: {name}", *wrong, sep="\n    ")
        if failed:
            ensemble.tell_last_words()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
