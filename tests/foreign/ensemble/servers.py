"""Three servers of one ensemble on loopback, for suites of foreign clients.

A server command takes the path of a zoo.cfg: "target/release/zoolet serve --config", or
tests/foreign/apache-zookeeper.
"""

import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Time limit for a server to serve, or to end.
PATIENCE_S = 60


class Server:
    """One server; it keeps its data over a kill and a new start."""

    def __init__(self, command, number, directory, ports, lines):
        self.command, self.number, self.port = command, number, ports[0]
        self.directory = directory / f"server-{number}"
        (self.directory / "data").mkdir(parents=True)
        (self.directory / "data" / "myid").write_text(f"{number}\n")
        self.config = self.directory / "zoo.cfg"
        self.config.write_text(
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={self.directory}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n"
            + "\n".join(lines)
            + "\n"
        )
        self.process = None

    def start(self):
        with (self.directory / "log").open("ab") as log:
            command = [*self.command, str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def end(self, how):
        """Sends a signal and waits for the end."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            finally:
                self.process = None

    def kill(self):
        self.end(signal.SIGKILL)

    def stop(self):
        self.end(signal.SIGTERM)

    def word(self, word):
        """Returns the answer to a four-letter word; empty while nothing listens."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    def mode(self):
        """Returns leader, follower, ...; None while it does not serve."""
        lines = (line for line in self.word("srvr").splitlines() if line.startswith("Mode: "))
        return next((line.removeprefix("Mode: ") for line in lines), None)


class Ensemble:
    """Servers 1 to 3, started and serving."""

    def __init__(self, command, base_port, more_lines=()):
        words = shlex.split(command)
        # A path in the tree must work from any current directory.
        words[0] = shutil.which(words[0]) or os.path.abspath(words[0])
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="zoolet-foreign-"))
        ports = {number: [base_port + 10 * number + place for place in range(3)] for number in (1, 2, 3)}
        lines = [f"server.{number}=127.0.0.1:{two}:{three}" for number, (_, two, three) in ports.items()]
        lines += more_lines
        self.servers = [Server(words, number, self.directory, ports[number], lines) for number in (1, 2, 3)]

    def __enter__(self):
        # Stops the servers on SIGTERM too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            for server in self.servers:
                server.start()
            self.wait_until_serving()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure):
        for server in self.servers:
            if server.process is not None:
                server.process.kill()
                server.process.wait()
        if failure and failure[0] is not None:
            self.tell_last_words()
        shutil.rmtree(self.directory, ignore_errors=True)

    def tell_last_words(self):
        for server in self.servers:
            lines = (server.directory / "log").read_text(errors="replace").splitlines()[-10:]
            print(f"server {server.number} said last:", *lines, sep="\n", file=sys.stderr)

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def wait_until_serving(self):
        deadline = time.monotonic() + PATIENCE_S
        for server in self.servers:
            while server.process is not None and server.mode() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"server {server.number} does not serve")
                time.sleep(0.1)

    def leader(self):
        """Waits for a leader and returns it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.process is not None and server.mode() == "leader":
                    return server
            time.sleep(0.05)
        raise TimeoutError("nobody leads")

    def in_turn(self):
        """Returns the servers in the documented order of a rolling restart: the leader last."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader] + [leader]
