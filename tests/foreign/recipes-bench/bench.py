"""bench.py JAVA...: see `run`."""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOREIGN = HERE.parent
TREE = FOREIGN.parent.parent
sys.path.insert(0, str(FOREIGN / "ensemble"))

from servers import Ensemble  # noqa: E402

# The figures of each shape in the table: key in the JSON, unit, digits.
LOCK = [("per_second", "/s", 0), ("cycle_us.p50", " us", 0), ("cycle_us.p99", " us", 0), ("take_us.p50", " us", 0), ("take_per_write", " writes", 2)]
CONTENDED = [("per_second", "/s", 0), ("least", "", 0), ("most", "", 0)]
SHAPES = {
    "lock": ("lock and unlock, nobody else wants it", LOCK),
    "contended-1": ("one contender again and again, and nothing else: what reaches the flash", CONTENDED),
    "contended-2": ("2 contenders for one lock; the fewest and the most that one got", CONTENDED),
    "contended-16": ("16 contenders", CONTENDED),
    "contended-128": ("128 contenders, of 50 sessions", CONTENDED),
    "handover": ("from the release of one to the grant of the next", [("handover_us.p50", " us", 0), ("handover_us.p99", " us", 0), ("handover_per_write", " writes", 2)]),
    "queue": ("items put in and taken out again", [("per_second", "/s", 0), ("puts_per_second", "/s", 0), ("takes_per_second", "/s", 0)]),
    "fanout": ("one set until the last of 1,000 watchers of 50 sessions has the data", [("all_told_us.p50", " us", 0), ("all_told_us.p99", " us", 0)]),
}
FLASH = [("flash.log_bytes_per_cycle", " bytes of log", 0), ("flash.base_bytes", " bytes of base in all", 0)]


def figure(report, place):
    for key in place.split("."):
        report = report[key]
    return report


def told(reports, place, unit, digits):
    values = [figure(report, place) for report in reports]
    middle, least, most = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle}{unit} ({least}-{most})"


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        print(f"FAILED: {' '.join(command[-4:])}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def contestants(options, java, hosts):
    """Returns, by name, the function that runs a shape."""
    bench = os.environ.get("ZOOLET_RECIPES_BENCH", str(TREE / "target/release/zoolet-recipes-bench"))
    clients = {
        "zoolet": [bench],
        "kazoo": [sys.executable, str(HERE / "kazoo_bench.py")],
        "curator": [*java, "CuratorBench"],
    }

    def over_tcp(command, servers):
        return lambda shape: run([*command, hosts[servers], shape, str(options.seconds)])

    def embedded(servers):
        def measure(shape):
            with tempfile.TemporaryDirectory(dir=options.data, prefix="zoolet-recipes-bench-") as data:
                return run([bench, "embedded", data, str(servers), shape, str(options.seconds)])

        return measure

    found = {"zoolet embedded, one server": embedded(1), "zoolet embedded in the leader of three": embedded(3)}
    for servers in hosts:
        found |= {f"{client} at {servers}": over_tcp(command, servers) for client, command in clients.items()}
    return {name: measure for name, measure in found.items() if not options.only or any(word in name for word in options.only)}


def measured(options, java, hosts):
    reports = {}
    chosen = contestants(options, java, hosts)
    for shape in options.shapes or SHAPES:
        # Alternates the order, so that other load on this machine affects all.
        for turn in range(options.runs):
            for name in list(chosen) if turn % 2 == 0 else reversed(chosen):
                os.sync()
                print(f"{shape}: {name}, run {turn + 1}", file=sys.stderr)
                report = chosen[name](shape)
                if report is not None:
                    reports.setdefault(shape, {}).setdefault(name, []).append(report)
    return reports


def table(reports):
    for shape, by_name in reports.items():
        what, figures = SHAPES[shape]
        print(f"\n{shape}: {what}\n")
        for name, runs in by_name.items():
            places = figures + (FLASH if "flash" in runs[0] else [])
            print(f"| {name} | " + " | ".join(told(runs, *place) for place in places) + " |")


def main():
    parser = argparse.ArgumentParser(prog="recipes-bench/run", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each shape by each (5); the table has medians and extremes")
    parser.add_argument("--seconds", type=float, default=5, help="of each run (5)")
    parser.add_argument("--json", help="a file for every figure of every run")
    parser.add_argument("--data", help="directory for the data of embedded nodes (the system's temporary one, where the other servers' is)")
    parser.add_argument("--only", action="append", help="those whose name has this in it, such as embedded, curator, or 'at zoolet'; may be repeated")
    parser.add_argument("--java", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    options = parser.parse_args()
    if unknown := [shape for shape in options.shapes if shape not in SHAPES]:
        parser.error(f"{unknown}: allowed shapes are {', '.join(SHAPES)}")
    zoolet = os.environ.get("ZOOLET", str(TREE / "target/release/zoolet"))
    load = os.getloadavg()[0]
    commands = {"zoolet": f"{zoolet} serve --config"}
    if shutil.which("java"):
        commands["zookeeper"] = str(FOREIGN / "apache-zookeeper")
    needed = {product: command for product, command in commands.items() if not options.only or any(word in f"{client} at {product}" for word in options.only for client in ("zoolet", "kazoo", "curator"))}
    ensembles = []
    try:
        for place, command in enumerate(needed.values()):
            ensembles.append(Ensemble(command, int(os.environ.get("PORT", "22640")) + 40 * place).__enter__())
        hosts = {product: ensemble.hosts for product, ensemble in zip(needed, ensembles)}
        reports = measured(options, options.java, hosts)
    finally:
        for ensemble in ensembles:
            ensemble.__exit__()
    print(f"Medians (extremes) of {options.runs} runs of {options.seconds:g} s. Load of the machine before: {load:.1f} on {os.cpu_count()} cores.")
    table(reports)
    if options.json:
        when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        facts = {"when": when, "load": load, "cores": os.cpu_count(), "seconds": options.seconds, "runs": reports}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1) + "\n")


main()
