"""compare.py RAW_DIR EXPECTED_DIR [--record | --improvements FILE]: compares output, without times and numbers.

Per session, RAW_DIR holds NAME.cmd (the commands), NAME.raw (zkCli's output) and NAME.exit (the exit code), and
EXPECTED_DIR holds NAME.txt. FILE names the commands to which another shell than zkCli answers better.
"""

import datetime
import difflib
import pathlib
import re
import sys
import tomllib

MARK = re.compile(r"^Node does not exist: /#(\d+)$")
# The usage text after a mistyped command differs between releases; the error line after it does
# not.
NOISE = re.compile(
    r"^$|^WATCHER::$|^JLine support is |^Connecting to |^Welcome to ZooKeeper!|^\t|^ZooKeeper -server host:port"
)
# zkCli's deleteall prints its failure only sometimes: the callback lets it go on before it notes the failure.
ZKCLI_NOISE = re.compile(r"^Failed to delete some node")
IDENTITY = re.compile(r"^(digest|ip): ")
LISTING = re.compile(r"^\[(\S+(?:, \S+)+)\]$")


def commands_of(file):
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def blocks(commands, raw, code, is_zkcli):
    """Returns [(command, its lines)], then the watch events and the exit code; `code` is None if each line has one.

    Another thread prints the events, so only the order among them is defined.
    """
    printed, events, zxids = [("(connecting)", [])], [], {}
    for line in raw.splitlines():
        line = line.rstrip()
        # Standard error, where the streams are apart.
        stream, line = ("! ", line[2:]) if line.startswith("! ") else ("", line)
        if mark := MARK.match(line):
            printed.append((commands[int(mark[1]) - 1], []))
        elif line.startswith("WatchedEvent"):
            if "type:None" not in line:  # state of the connection; it may be missing
                events.append(re.sub(r" zxid: -?\d+$", "", line))  # printed from 3.9 on
        elif not NOISE.match(line) and not (is_zkcli and ZKCLI_NOISE.match(line)):
            printed[-1][1].append(stream + normalised(line, zxids))
    for _, lines in printed:
        if all(IDENTITY.match(line) for line in lines[1:]):
            lines[1:] = sorted(lines[1:])
    return printed + [("(events)", events)] + ([] if code is None else [("(exit)", [code])])


def is_recent(text):
    """Returns whether a time has the form of a Java date in UTC, and is of the last hour."""
    try:
        time = datetime.datetime.strptime(text, "%a %b %d %H:%M:%S UTC %Y")
    except ValueError:
        return False
    return abs(datetime.datetime.utcnow() - time) < datetime.timedelta(hours=1)


def normalised(line, zxids):
    """Replaces recent times by T, and zxids by Z1, Z2... in order of appearance; equal ones stay equal."""
    if (time := re.match(r"^([mc]time) = (.*)", line)) and is_recent(time[2]):
        line = f"{time[1]} = T"
    line = re.sub(r"^(ZooKeeper CLI version:|zoolet shell) [^,]*(, built on .*)?", r"\1 V", line)
    line = re.sub(r"^ephemeralOwner = 0x[0-9a-f]{2,}", "ephemeralOwner = S", line)
    line = re.sub(r"^([cmp]Zxid) = (\S+)", lambda m: f"{m[1]} = {zxids.setdefault(m[2], f'Z{len(zxids) + 1}')}", line)
    # getEphemerals lists a hash table, whose order is undefined.
    if listing := LISTING.match(line):
        line = "[" + ", ".join(sorted(listing[1].split(", "))) + "]"
    return line


def improved(name, expected, improvements):
    """Returns zkCli's lines with the better answers in place of its own, and the names of stale improvements."""
    printed, order = {}, []
    for line in expected:
        if line.startswith("> "):
            order.append(line)
            printed[len(order) - 1] = []
        else:
            printed[len(order) - 1].append(line)
    stale = []
    for improvement in improvements:
        if improvement["session"] != name:
            continue
        places = [at for at, line in enumerate(order) if line == f"> {improvement['command']}"]
        better = improvement["prints"].splitlines()
        if not any(printed[at] != better for at in places):
            stale.append(improvement["name"])
        for at in places:
            printed[at] = better
    return [line for at, command in enumerate(order) for line in (command, *printed[at])], stale


def text(found):
    return [line for command, lines in found for line in (f"> {command}", *lines)]


def main():
    raw_dir, expected_dir = map(pathlib.Path, sys.argv[1:3])
    record = "--record" in sys.argv
    improvements = []
    if "--improvements" in sys.argv:
        file = pathlib.Path(sys.argv[sys.argv.index("--improvements") + 1])
        improvements = tomllib.loads(file.read_text()).get("improvement", [])
    passed = failed = 0
    for raw in sorted(raw_dir.glob("*.raw")):
        exit_file = raw.with_suffix(".exit")
        code = exit_file.read_text().strip() if exit_file.exists() else None
        is_zkcli = "--improvements" not in sys.argv
        found = blocks(commands_of(raw.with_suffix(".cmd")), raw.read_text(errors="replace"), code, is_zkcli)
        expected_file = expected_dir / (raw.stem + ".txt")
        if record:
            expected_file.write_text("\n".join(text(found)) + "\n")
        expected, stale = improved(raw.stem, expected_file.read_text().splitlines(), improvements)
        for name in stale:
            failed += 1
            print(f"{raw.stem}: zkCli answers the same, so this is no improvement: {name}")
        diff = list(difflib.unified_diff(expected, text(found), "expected", f"printed ({raw.stem})", lineterm="", n=4))
        print("\n".join(diff) if diff else f"{raw.stem}: {len(found)} as expected")
        wrong = len(wrong_blocks(expected, text(found)))
        failed += wrong
        passed += max(len(found) - wrong, 0)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def wrong_blocks(expected, found):
    """Returns the indexes of the commands that differ."""
    wrong = set()
    for kind, i1, i2, j1, _ in difflib.SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if kind != "equal":
            for at in range(i1, max(i2, i1 + 1)):
                while at > 0 and not (at < len(expected) and expected[at].startswith("> ")):
                    at -= 1
                wrong.add(at)
    return wrong


sys.exit(main())
