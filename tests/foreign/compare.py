"""The arithmetic and the two servers of tests/foreign/compare."""

import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent

# The measured figure of each shape: a rate (higher is better), or a latency in microseconds.
RATE, P50 = "per_second", "p50"
SHAPES = {
    "sets-1000": ("sets, 8 x 64, 100 bytes, 1,000 keys", "--op set --keys 1000", RATE),
    "sets-1m": ("sets, 8 x 64, 100 bytes, {many:,} keys", "--op set --keys {many}", RATE),
    "gets-1m": ("gets, 8 x 64, 100 bytes, {many:,} keys", "--op get --keys {many}", RATE),
    "gets": ("gets, 8 x 64, 100 bytes, 1,000 keys", "--op get --keys 1000", RATE),
    "one-set": ("one client, one set at a time, p50", "--op set --keys 1000 --connections 1 --outstanding 1", P50, "leader"),
    "one-set-follower": ("the same through a follower, p50", "--op set --keys 1000 --connections 1 --outstanding 1", P50, "follower"),
    "mix90": ("90% gets and 10% sets, 8 x 64, 1,000 keys", "--op mix --keys 1000 --read-percent 90", RATE),
    "fan-out": ("one set until the last of 100 watchers has its event, p50", "--op watch --connections 100", P50),
    "locks": ("lock cycles, 8 contenders for one lock", "--op lock --connections 8 --locks 1", RATE),
}


class Process:
    """One server of a server command that takes the path of a zoo.cfg, on a fresh directory."""

    def __init__(self, command, number, ports, lines, directory):
        self.number, self.port = number, ports[0]
        directory.mkdir()
        (directory / "data").mkdir()
        (directory / "data" / "myid").write_text(f"{number}\n")
        config = directory / "zoo.cfg"
        config.write_text(
            f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n" + "".join(lines)
        )
        self.log = directory / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, str(config)], stdout=log, stderr=log, start_new_session=True)

    def wait(self, name):
        deadline = time.monotonic() + 60
        while self.mode() is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{name} did not start; its output:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    def word(self, word):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.sendall(word.encode())
                chunks = iter(lambda: connection.recv(65536), b"")
                return b"".join(chunks).decode()
        except OSError:
            return ""

    def mode(self):
        """Returns leader, follower, observer or standalone; None while it does not serve."""
        lines = (line for line in self.word("srvr").splitlines() if line.startswith("Mode: "))
        return next((line.removeprefix("Mode: ") for line in lines), None)

    def figures(self):
        lines = (line.split("\t", 1) for line in self.word("mntr").splitlines() if "\t" in line)
        return {key.removeprefix("zk_"): value for key, value in lines}

    def memory_mib(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        words = {line.split(":")[0]: line.split() for line in lines}
        return int(words["VmRSS"][1]) / 1024, int(words["VmHWM"][1]) / 1024

    def turns(self):
        """Returns how often the present threads left a processor, and the CPU time of all threads in microseconds."""
        process, switches = pathlib.Path(f"/proc/{self.process.pid}"), 0
        for thread in (process / "task").iterdir():
            try:
                lines = (thread / "status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue  # The thread has ended.
            switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches:" in line)
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        return switches, (int(user) + int(system)) * 1e6 / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


class Server:
    """One server, or an ensemble whose last members are observers."""

    def __init__(self, name, command, port, directory, servers=1, observers=0):
        self.name, self.processes = name, []
        directory.mkdir()
        ports = {number: [port + 10 * number + place for place in range(3)] for number in range(1, servers + observers + 1)}
        lines = []
        if len(ports) > 1:
            role = {number: ":observer" if number > servers else "" for number in ports}
            lines = [f"server.{number}=127.0.0.1:{two}:{three}{role[number]}\n" for number, (_, two, three) in ports.items()]
        for number in ports:
            own = [*lines, "peerType=observer\n"] if number > servers else lines
            self.processes.append(Process(command, number, ports[number], own, directory / str(number)))
        for process in self.processes:
            process.wait(name)

    def fdatasyncs(self):
        """Counts the fdatasyncs of the leader's log since its start; the products' names differ."""
        figures = self.at("leader").figures()
        return float(figures["log_fdatasyncs"] if "log_fdatasyncs" in figures else figures["cnt_fsynctime"])

    def turns(self):
        """Returns thread switches and CPU microseconds of all servers, and the UDP datagrams of this machine."""
        each = [process.turns() for process in self.processes]
        return sum(switches for switches, _ in each), sum(cpu for _, cpu in each), datagrams()

    def memory_mib(self):
        """Returns the current and peak memory of the largest server."""
        each = [process.memory_mib() for process in self.processes]
        return max(now for now, _ in each), max(peak for _, peak in each)

    def at(self, role):
        """Returns the server with this role; the only server if it is alone."""
        if len(self.processes) == 1:
            return self.processes[0]
        found = [process for process in self.processes if process.mode() == role]
        return found[0] if found else sys.exit(f"{self.name} has no {role}")

    def hosts(self, role):
        """Returns the addresses for clients: of one server, or of all."""
        processes = self.processes if role is None else [self.at(role)]
        return ",".join(f"127.0.0.1:{process.port}" for process in processes)

    def bench(self, zoolet, words, seconds, role=None):
        command = [zoolet, "bench", "--server", self.hosts(role), "--json", "--keep", *words.split()]
        command += ["--duration", f"{seconds}s", "--warmup", "0s", "--session-timeout", "30s"]
        syncs, turns = self.fdatasyncs(), self.turns()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if not done.stdout:
            sys.exit(f"{self.name}: {' '.join(command)} failed")
        report = json.loads(done.stdout)
        if report["failure"] or report["errors"]:
            print(f"{self.name}: {report['errors']} errors {report['errors_by_name']} {report['failure']}", file=sys.stderr)
        turned = self.turns()
        report["turns"] = [(now - before) / report["requests"] for now, before in zip(turned, turns)]
        report["fdatasyncs"] = self.fdatasyncs() - syncs
        return report

    def stop(self):
        for process in self.processes:
            process.stop()


def datagrams():
    """Counts the UDP datagrams that this machine has sent."""
    names, values = (line.split() for line in pathlib.Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Udp:"))
    return int(values[names.index("OutDatagrams")])


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def spread(values):
    return f"{number(statistics.median(values))} ({number(min(values))}-{number(max(values))})"


def figure(report, kind):
    return report[kind] if kind == RATE else report["latency_us"][kind]


def writes_per_fdatasync(reports):
    """The fdatasyncs include the few that open and close sessions."""
    shares = []
    for report in reports:
        writes = report["write_latency_us"]["count"]
        if writes and report["fdatasyncs"] > 0:
            shares.append(writes / report["fdatasyncs"])
    return f"{statistics.median(shares):.1f}" if shares else "-"


def measure(servers, zoolet, shape, options):
    what, words, kind, *role = SHAPES[shape]
    what, words = what.format(many=options.keys_many), words.format(many=options.keys_many)
    reports = {server.name: [] for server in servers}
    for server in servers:
        # Creates the keys, and warms the JVM with the load to be measured.
        print(f"{shape}: {server.name} warms up for {options.warmup} s", file=sys.stderr)
        server.bench(zoolet, words, options.warmup, *role)
    for turn in range(options.runs):
        for server in servers if turn % 2 == 0 else reversed(servers):
            # One product's unwritten data must not be written while the other one is measured.
            os.sync()
            time.sleep(1)
            report = server.bench(zoolet, words, options.seconds, *role)
            reports[server.name].append(report)
            told = f"{report['per_second']:,.0f}/s, p50 {report['latency_us']['p50']} us, p99 {report['latency_us']['p99']} us"
            print(f"{shape}: {server.name} run {turn + 1}: {told}", file=sys.stderr)
    cells = [[figure(report, kind) for report in reports[server.name]] for server in servers]
    ratio = statistics.median(cells[0]) / statistics.median(cells[1])
    unit = "/s" if kind == RATE else " us"
    syncs = " / ".join(writes_per_fdatasync(reports[server.name]) for server in servers)
    p99 = " / ".join(number(statistics.median(r["latency_us"]["p99"] for r in reports[s.name]) / 1000) for s in servers)
    row = [what, *(spread(values) + unit for values in cells), f"{ratio:.2f}", p99, syncs]
    turns = [" / ".join(number(statistics.median(r["turns"][at] for r in reports[s.name])) for s in servers) for at in range(3)]
    return ["| " + " | ".join(cells) + " |" for cells in (row, [what, *turns])]


def main():
    parser = argparse.ArgumentParser(prog="compare", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each shape and server (5)")
    parser.add_argument("--seconds", type=int, default=8, help="of each run (8)")
    parser.add_argument("--warmup", type=int, default=15, help="seconds of each shape before its first run (15)")
    parser.add_argument("--keys-many", type=int, default=1_000_000, help="keys of sets-1m and gets-1m (1000000)")
    parser.add_argument("--profile", default="emmc/512m", help="of zoolet (emmc/512m, its default)")
    parser.add_argument("--heap", default="1000m", help="of the JVM (1000m, what ZooKeeper's own script gives)")
    parser.add_argument("--servers", type=int, default=1, help="of each product: an ensemble if more than one (1)")
    parser.add_argument("--observers", type=int, default=0, help="and so many that do not vote (0)")
    parser.add_argument("--before", metavar="BINARY", help="another zoolet binary, compared instead of ZooKeeper")
    parser.add_argument("--port", type=int, default=23280, help="the first of two hundred (23280)")
    parser.add_argument("--data", help="directory for both servers' data (the system's temporary one)")
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    options = parser.parse_args()
    if options.servers < 2 and "one-set-follower" in options.shapes:
        parser.error("one-set-follower: needs --servers")
    unknown = [shape for shape in options.shapes if shape not in SHAPES]
    if unknown or options.runs < 1:
        parser.error(f"allowed shapes: {', '.join(SHAPES)}" if unknown else "--runs: at least 1")
    zoolet = os.environ.get("ZOOLET", str(TREE / "target/release/zoolet"))
    default = [shape for shape in SHAPES if options.servers > 1 or shape != "one-set-follower"]
    shapes = options.shapes or default
    servers, count = [], (options.servers, options.observers)
    # Stops the servers on SIGTERM too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(dir=options.data, prefix="zoolet-compare-") as work:
        work = pathlib.Path(work)
        try:
            serve = ["serve", "--log", "warn", "--profile", options.profile, "--config"]
            servers.append(Server("zoolet", [zoolet, *serve], options.port, work / "zoolet", *count))
            if options.before:
                servers.append(Server("before", [options.before, *serve], options.port + 100, work / "before", *count))
            else:
                # The heap size of ZooKeeper's start script; apache-zookeeper beside this file is
                # for small trees.
                os.environ["JVM_OPTIONS"] = f"-Xmx{options.heap}"
                java = [str(HERE / "zookeeper-java"), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
                servers.append(Server("ZooKeeper", java, options.port + 100, work / "zookeeper", *count))
            rows = [measure(servers, zoolet, shape, options) for shape in shapes]
            memory = [server.memory_mib() for server in servers]
        finally:
            for server in servers:
                server.stop()
    mine, other = (server.name for server in servers)
    print(f"\nMedians of {options.runs} alternating runs of {options.seconds} s (extremes); {options.warmup} s of warm-up for each shape.\n")
    print(f"| load | {mine} | {other} | {mine} / {other} | p99 ms | acknowledged writes per fdatasync |")
    print("|---|---|---|---|---|---|")
    print("\n".join(row for row, _ in rows))
    for what, at in (("resident afterwards", 0), ("resident at most", 1)):
        here, there = memory[0][at], memory[1][at]
        print(f"| {what} | {here:.1f} MiB | {there:.1f} MiB | {here / there:.2f} | | |")
    print(f"\nFor each request, {mine} / {other}. Thread switches and CPU time are those of all servers, datagrams those of the machine.\n")
    print("| load | thread switches | CPU us | UDP datagrams |")
    print("|---|---|---|---|")
    # Leaves out the shapes with many keys: the figures would include their creation.
    print("\n".join(turns for shape, (_, turns) in zip(shapes, rows) if "{many}" not in SHAPES[shape][1]))


main()
