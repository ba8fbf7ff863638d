"""mixed.py FLEET_BINARY JAVA...: see `run`."""

import collections
import logging
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from judge import judge
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = int(os.environ.get("SECONDS_UNDER_HARM", "90"))
# Longer than the session timeout of the fleet.
EXPIRY_S = 11
PAUSE_S = 3
PATIENCE_S = 90
CONTESTS = {
    "curator": ("zoolet", "curator"),
    "kazoo": ("zoolet", "kazoo"),
    "all": ("zoolet", "curator", "kazoo"),
}
RECIPES = ("mutex", "read-write", "election")


class Process:
    """One program of the fleet; it can be killed and started again."""

    def __init__(self, name, command, directory):
        self.name, self.command, self.log = name, command, directory / f"{name}.log"
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        self.process.stdin.write(b"over\n")
        self.process.stdin.flush()

    def is_idle(self):
        return self.process.stdout.readline() == b"idle\n"


class Fleet:
    def __init__(self, binary, java, directory, port):
        self.directory, self.journal_path = directory, directory / "journal"
        self.journal = os.open(self.journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.ports = [port + number for number in range(3)]
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        peers = ",".join(f"127.0.0.1:{port + 10 + number}" for number in range(3))
        journal = str(self.journal_path)
        self.members = [
            Process(f"zoolet-{number + 1}", [binary, str(number + 1), str(directory / f"data-{number}"), str(self.ports[number]), peers, journal], directory)
            for number in range(3)
        ]
        self.others = []
        self.wait_until_serving()
        self.client = KazooClient(self.hosts, timeout=30)
        self.client.start(timeout=PATIENCE_S)
        self.client.ensure_path("/mixed")
        for number in (1, 2):
            name = f"curator-{number}"
            self.others.append(Process(name, [*java, "CuratorFleet", name, self.hosts, journal], directory))
            name = f"kazoo-{number}"
            self.others.append(Process(name, [sys.executable, str(HERE / "kazoo_fleet.py"), name, self.hosts, journal], directory))

    def tell(self, what, *words):
        os.write(self.journal, " ".join((what, "harm", *words)).encode() + b"\n")

    def lines(self):
        return self.journal_path.read_text().splitlines()

    def mode(self, port):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return None
        return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), None)

    def wait_until_serving(self):
        deadline = time.monotonic() + PATIENCE_S
        while any(self.mode(port) is None for port in self.ports):
            if time.monotonic() > deadline:
                raise TimeoutError("a member does not serve")
            time.sleep(0.1)

    def kill_and_start(self, process):
        self.tell("down", process.name)
        process.kill()
        # From here on, sessions under this name belong to the new process.
        self.tell("up", process.name)
        process.start()

    def kill_member(self, leads):
        choice = [member for member, port in zip(self.members, self.ports) if (self.mode(port) == "leader") == leads]
        if choice:
            self.kill_and_start(random.choice(choice))
            self.wait_until_serving()

    def stand_still(self, process):
        """Stops a process for longer than its session timeout."""
        self.tell("down", process.name)
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(EXPIRY_S)
        self.tell("up", process.name)
        process.process.send_signal(signal.SIGCONT)

    def end_a_session(self, process):
        """Ends a session while its process runs, like an unexpected expiry."""
        announced = [line.split() for line in self.lines() if line.startswith(f"session {process.name} ")]
        ended = {line.split()[2] for line in self.lines() if line.startswith(("ended ", "lost "))}
        alive = [words for words in announced if words[2] not in ended]
        _, _, session, password = random.choice(alive[-7:])
        self.tell("ended", session)
        number = int(session, 16)
        intruder = KazooClient(self.hosts, client_id=(number - (1 << 64) if number >> 63 else number, bytes.fromhex(password)))
        intruder.start(timeout=PATIENCE_S)
        intruder.stop()
        intruder.close()

    def do_harm(self):
        by_name = {process.name: process for process in self.others}
        curator, kazoo = ([by_name[f"{library}-{number}"] for number in (1, 2)] for library in ("curator", "kazoo"))
        harms = [
            ("kazoo killed", lambda: self.kill_and_start(kazoo[0])),
            ("a session of Curator ended", lambda: self.end_a_session(curator[1])),
            ("leader killed", lambda: self.kill_member(True)),
            ("a session of kazoo ended", lambda: self.end_a_session(kazoo[1])),
            ("Curator killed", lambda: self.kill_and_start(curator[0])),
            ("follower killed", lambda: self.kill_member(False)),
            ("kazoo stands still", lambda: self.stand_still(kazoo[1])),
            ("Curator stands still", lambda: self.stand_still(curator[1])),
        ]
        until, done = time.monotonic() + SECONDS, collections.Counter()
        while time.monotonic() < until or len(done) < len(harms):
            name, harm = harms[done.total() % len(harms)]
            time.sleep(PAUSE_S)
            print(f"{name}", flush=True)
            harm()
            done[name] += 1
        # Sessions of the last killed process live until they expire.
        time.sleep(EXPIRY_S + PAUSE_S)
        return done

    def finish(self):
        """Makes every process end its turn and report that; members serve on."""
        for process in self.others + self.members:
            process.finish()
        return [process.name for process in self.others + self.members if not process.is_idle()]

    def stop(self):
        for process in self.others + self.members:
            process.kill()


def judged(fleet, done):
    found = judge(fleet.lines())
    yield "nobody was inside with somebody it excludes, and tokens grew", found.wrong
    for fleet_name, libraries in CONTESTS.items():
        for recipe in RECIPES:
            name = f"{fleet_name}/{recipe}"
            counts = {library: found.grants[name, library] for library in libraries}
            after = [library for library in libraries if not found.last_phase[name, library]]
            yield f"{name}: {counts}", [f"{library} was granted nothing after the last harm" for library in after]
    counts = [found.grants["curator/semaphore", library] for library in CONTESTS["curator"]]
    yield f"curator/semaphore: {counts}", [] if all(counts) else ["somebody was never granted it"]
    yield f"holders asked to release by another library: {dict(found.asked)}", [
        f"no holder of {library} was" for library in CONTESTS["curator"] if not found.asked[library]
    ]
    value = int(fleet.client.get("/mixed/kazoo/counter")[0])
    least, most = found.added["kazoo/counter"], found.adding["kazoo/counter"]
    # An addition of a killed process may or may not have happened. With kazoo, an addition may
    # happen twice when the connection is lost.
    doubtful = most - least + 2 * done.total()
    is_right = 0 < least <= value <= least + doubtful
    yield f"kazoo/counter: {value} after {least} additions, and {most - least} of which nobody knows", [] if is_right else ["does not add up"]
    print(f"{found.expired} sessions expired that nobody had ended; turns that failed: {found.failed.total()}")
    for what, count in found.failed.most_common(8):
        print(f"    {count} times {what}")


def nothing_is_left(fleet):
    deadline = time.monotonic() + 30
    paths = [f"/mixed/{name}/{recipe}" for name in CONTESTS for recipe in RECIPES]
    paths += ["/mixed/curator/semaphore/leases", "/mixed/curator/semaphore/locks", "/mixed/curator/revocable"]
    left = None
    while left != {}:
        left = {}
        for path in paths:
            try:
                fleet.client.sync("/mixed")
                children = fleet.client.get_children(path)
            except NoNodeError:
                continue
            if children:
                left[path] = children
        if time.monotonic() > deadline:
            return [f"{path}: {children}" for path, children in left.items()]
        time.sleep(0.2)
    return []


def listed_by_both(fleet):
    """kazoo holds a lock and every member waits for it; all must list the same contenders."""
    lock = fleet.client.Lock("/mixed/kazoo/listed", "kazoo")
    deadline, wrong = time.monotonic() + 30, ["not tried"]
    with lock:
        while wrong and time.monotonic() < deadline:
            time.sleep(0.2)
            kazoo = lock.contenders()
            zoolet = [fleet.client.get(f"/mixed/seen-by-{member.name}")[0].decode().split(",") for member in fleet.members]
            is_whole = sorted(kazoo) == ["kazoo", "zoolet-1", "zoolet-2", "zoolet-3"] and kazoo[0] == "kazoo"
            wrong = [] if is_whole and all(one == kazoo for one in zoolet) else [f"kazoo sees {kazoo}, members {zoolet}"]
    return wrong


def stock_libraries_exclude_each_other_not(fleet, java):
    """Stock kazoo and Curator do not exclude each other, as the documentation warns.

    A failure means that the libraries have become compatible.
    """
    with subprocess.Popen([*java, "CuratorFleet", "hold", fleet.hosts, "/mixed/warned"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as curator:
        if curator.stdout.readline() != b"held\n":
            return ["Curator does not get a lock that nobody has"]
        lock = fleet.client.Lock("/mixed/warned")
        wrong = [] if lock.acquire(blocking=False) else ["kazoo waits for Curator"]
        if lock.is_acquired:
            lock.release()
        mixed = type("Mixed", (Lock,), {"_NODE_NAME": "-lock-", "_EXCLUDE_NAMES": ["-lock-"]})(fleet.client, "/mixed/warned")
        if mixed.acquire(blocking=False):
            wrong.append("kazoo does not wait for Curator with its names either")
        curator.stdin.write(b"\n")
        curator.stdin.close()
    return wrong


def example(fleet):
    """examples/python/kazoo_mixed.py takes the lock of the members."""
    script = HERE.parents[2] / "examples" / "python" / "kazoo_mixed.py"
    ran = subprocess.run([sys.executable, str(script), fleet.hosts, "/mixed/all/mutex", "3"], capture_output=True, text=True, timeout=PATIENCE_S)
    held = [line for line in ran.stdout.splitlines() if line.startswith("held with token ")]
    return [] if ran.returncode == 0 and len(held) == 3 else [ran.stdout + ran.stderr]


def main():
    binary, *java = sys.argv[1:]
    # Log messages about killed servers are expected.
    logging.basicConfig(level=logging.CRITICAL)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="zoolet-mixed-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    fleet, results = None, []
    try:
        fleet = Fleet(os.path.abspath(binary), java, directory, int(os.environ.get("PORT", "22560")))
        time.sleep(PAUSE_S)
        results.append(("contenders of kazoo and zoolet are listed by both alike", listed_by_both(fleet)))
        done = fleet.do_harm()
        results.append(("the example of kazoo takes the lock of members", example(fleet)))
        results.append(("everybody ends its turn", fleet.finish()))
        results += judged(fleet, done)
        results.append(("nothing is left behind in any line", nothing_is_left(fleet)))
        results.append(("kazoo and Curator as they are have two holders, with Curator's names one", stock_libraries_exclude_each_other_not(fleet, java)))
    finally:
        if fleet is not None:
            fleet.stop()
        failed = [name for name, wrong in results if wrong]
        if failed or not results:
            for log in sorted(directory.glob("*.log")):
                print(f"{log.stem} said last:", *log.read_text(errors="replace").splitlines()[-5:], sep="\n    ")
            if keep := os.environ.get("KEEP_JOURNAL"):
                shutil.copy(directory / "journal", keep)
        shutil.rmtree(directory, ignore_errors=True)
    for name, wrong in results:
        print(f"{'FAILED' if wrong else 'ok'}: {name}", *wrong[:10], sep="\n    ")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    sys.exit(len(failed) > 0)


main()
