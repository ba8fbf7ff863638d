"""Judges the journal of a mixed fleet.

Every program appends lines to one file. It records a grant before using it, and the end of the
grant before releasing it. So two grants that overlap in the journal overlapped in fact, and must be
compatible. Lines are `WHAT PROCESS ...`:

session SESSION PASSWORD | a session of the process
enter, leave NAME MODE SESSION CZXID | a grant; x is exclusive, s shared, N allows N holders at once
ended SESSION | the harness is about to end this session
down, up PROCESS | the harness is about to kill or stop PROCESS with its sessions; it runs again
lost SESSION | the process learned that its session is over
adding, added NAME | an addition to a counter
asked NAME | a holder was asked to release, and is about to do so
failed NAME ... | a turn failed; others follow

After the end of its session a process may continue for a moment. Fencing exists for that case, so
the lines of such a session do not count.
"""

import collections

EXCLUSIVE, SHARED = "x", "s"


class Judgement:
    def __init__(self):
        self.wrong = []
        # By contest and library.
        self.grants = collections.Counter()
        self.last_phase = collections.Counter()
        self.asked = collections.Counter()
        self.adding, self.added = collections.Counter(), collections.Counter()
        self.failed = collections.Counter()
        self.expired = 0


def library(process):
    return process.split("-")[0]


def judge(lines):
    judgement = Judgement()
    told_lost = {line.split()[2] for line in lines if line.startswith("lost ")}
    of_process, down, ended = collections.defaultdict(set), set(), set()
    inside = collections.defaultdict(dict)
    newest = collections.defaultdict(lambda: {EXCLUSIVE: 0, SHARED: 0})

    def end(session):
        ended.add(session)
        for holders in inside.values():
            holders.pop(session, None)

    for line in lines:
        what, process, *words = line.split()
        if what == "session":
            of_process[process].add(words[0])
            if process in down:
                end(words[0])
        elif what == "ended":
            end(words[0])
            judgement.last_phase.clear()
        elif what == "down":
            down.add(words[0])
            for session in of_process[words[0]]:
                end(session)
            judgement.last_phase.clear()
        elif what == "up":
            down.discard(words[0])
        elif what == "lost":
            judgement.expired += words[0] not in ended
            end(words[0])
        elif what == "leave":
            inside[words[0]].pop(words[2], None)
        elif what == "enter" and words[2] not in ended:
            name, mode, session, czxid = *words[:3], int(words[3])
            for other, (other_mode, other_czxid) in list(inside[name].items()):
                if mode == SHARED == other_mode or mode.isdigit():
                    continue
                if other in told_lost:
                    # The session has expired, and its process learns of it later.
                    end(other)
                    judgement.expired += 1
                    continue
                judgement.wrong.append(f"{name}: {session} ({mode}, {czxid}) came in while {other} ({other_mode}, {other_czxid}) was inside")
            if mode.isdigit():
                for other in [other for other in inside[name] if other in told_lost and len(inside[name]) >= int(mode)]:
                    end(other)
                if len(inside[name]) >= int(mode):
                    judgement.wrong.append(f"{name}: {session} came in while {len(inside[name])} were inside")
            else:
                before = newest[name]
                limit = before[EXCLUSIVE] if mode == SHARED else max(before.values())
                if czxid <= limit:
                    judgement.wrong.append(f"{name}: {session} has the token {czxid}, and one before it had {limit}")
                before[mode] = max(before[mode], czxid)
            inside[name][session] = mode, czxid
            judgement.grants[name, library(process)] += 1
            judgement.last_phase[name, library(process)] += 1
        elif what == "adding":
            judgement.adding[words[0]] += 1
        elif what == "added":
            judgement.added[words[0]] += 1
        elif what == "asked":
            judgement.asked[library(process)] += 1
        elif what == "failed":
            judgement.failed[line.split(maxsplit=2)[2]] += 1
    return judgement
