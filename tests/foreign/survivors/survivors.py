"""survivors.py ADDRESS: a kazoo client that calls one server without retries and reports every answer.

The protocol on standard input and output, which Survivors.java and survivors.c speak too:

  begin RUN   makes the znodes of this run below /survivors-NAME-RUN, prints `begun RUN SESSION`, and
              calls until the next command
  end RUN     prints `ended RUN SESSION OWNER`; OWNER is the owner of the run's ephemeral, or `?`

  CALL ok [NUMBER [DATA]]   an answered call; CALL is set, get, conditional, create, sync, arm or
                            trigger; NUMBER is the znode's version, or the number of a sequential one
  CALL failed WORD          a failed call
  state WORD                a change of the connection; `connected` is the only good one
  event                     a fired data watch

The program judges nothing. It ends with its standard input.
"""

import logging
import os
import select
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from kazoo.protocol.states import EventType, KazooState

SESSION_S = 15.0
PAUSE_S = 0.005
# Wait for the event of a watch that the last write fired.
EVENT_S = 1.0

printing = threading.Lock()
pending = b""


def say(*words):
    with printing:
        print(*words, flush=True)


def command(wait):
    """Returns the next command as words, or None if there is none yet. Exits at the end of the input."""
    global pending
    while b"\n" not in pending:
        if not wait and not select.select([0], [], [], 0)[0]:
            return None
        some = os.read(0, 4096)
        if not some:
            os._exit(0)
        pending += some
    line, pending = pending.split(b"\n", 1)
    return line.decode().split()


class Load:
    """The calls of one run."""

    def __init__(self, client, root):
        self.client, self.root = client, root
        self.fired = threading.Event()
        self.is_armed = False
        # Version of the value, or None if the last call for it failed.
        self.version = None

    def prepare(self):
        for path in ("", "/value", "/watched", "/parent"):
            self.make(self.root + path)
        self.make(self.root + "/ephemeral", ephemeral=True)

    def make(self, path, **options):
        try:
            self.client.create(path, b"0", **options)
        except NodeExistsError:
            pass

    def say_event(self, event):
        if event.type == EventType.CHANGED:
            say("event")
            self.fired.set()

    def call(self, name, function):
        """Makes one call and reports it. Returns the first number of its answer, or None."""
        try:
            numbers = function()
        except Exception as error:
            say(name, "failed", type(error).__name__)
            numbers = None
        else:
            say(name, "ok", *numbers)
        time.sleep(PAUSE_S)
        return numbers[0] if numbers else None

    def turn(self, number):
        value = self.root + "/value"
        data = str(number)
        self.version = self.call("set", lambda: (self.client.set(value, data.encode()).version, data))
        self.version = self.call("get", lambda: self.got(self.client.get(value)))
        if number % 10 == 5 and self.version is not None:
            version = self.version
            self.call("conditional", lambda: (self.client.set(value, data.encode(), version).version, data))
        if number % 10 == 0:
            self.call("create", self.create)
        if number % 25 == 0:
            self.call("sync", lambda: (self.client.sync(value), ())[1])
        if number % 5 == 0:
            self.watch(data)

    @staticmethod
    def got(answer):
        data, stat = answer
        return stat.version, data.decode()

    def create(self):
        return (int(self.client.create(self.root + "/parent/n-", b"", sequence=True)[-10:]),)

    def watch(self, data):
        watched = self.root + "/watched"
        if self.is_armed:
            if self.call("trigger", lambda: (self.client.set(watched, data.encode()).version,)) is None:
                return
            self.fired.wait(EVENT_S)
            self.is_armed = False
        self.fired.clear()
        armed = self.call("arm", lambda: (self.client.get(watched, watch=self.say_event)[1].version,))
        self.is_armed = armed is not None

    def owner(self):
        try:
            stat = self.client.exists(self.root + "/ephemeral")
        except Exception:
            return "?"
        return f"{stat.ephemeralOwner:x}" if stat else "0"


def main():
    logging.disable(logging.CRITICAL)
    client = KazooClient(hosts=sys.argv[1], timeout=SESSION_S, connection_retry=None, command_retry=None)
    client.add_listener(lambda state: say("state", "connected" if state == KazooState.CONNECTED else state.lower()))
    client.start(timeout=60)
    while True:
        _, run = command(wait=True)
        while not client.connected:
            time.sleep(0.01)
        load = Load(client, f"/survivors-kazoo-{sys.argv[1].split(':')[0]}-{run}")
        load.prepare()
        say("begun", run, f"{client.client_id[0]:x}")
        number = 0
        while command(wait=False) is None:
            number += 1
            load.turn(number)
        session = client.client_id[0] if client.client_id else 0
        say("ended", run, f"{session:x}", load.owner())


main()
