"""The judge finds each violation, and accepts correct journals."""

from judge import judge

SESSIONS = ["session zoolet-1 a -", "session curator-1 b 00"]


def wrong(*lines):
    return len(judge([*SESSIONS, *lines]).wrong)


ENTER_A, LEAVE_A = "enter zoolet-1 f/mutex x a 5", "leave zoolet-1 f/mutex x a 5"
ENTER_B = "enter curator-1 f/mutex x b 6"

CASES = {
    "one after the other": (0, ENTER_A, LEAVE_A, ENTER_B),
    "two at once": (1, ENTER_A, ENTER_B),
    "a token that does not grow": (1, "enter curator-1 f/mutex x b 6", "leave curator-1 f/mutex x b 6", ENTER_A),
    "a session that was ended": (0, ENTER_A, "ended harm a", ENTER_B, LEAVE_A),
    "another session that was ended": (1, ENTER_A, "ended harm c", ENTER_B),
    "a process that was killed": (0, ENTER_A, "down harm zoolet-1", "up harm zoolet-1", ENTER_B),
    "a later session of a process that was killed": (1, "down harm zoolet-1", "up harm zoolet-1", "session zoolet-1 c -", "enter zoolet-1 f/mutex x c 5", ENTER_B),
    "a session that expired and hears of it later": (0, ENTER_A, ENTER_B, "lost zoolet-1 a"),
    "readers together": (0, "enter zoolet-1 f/rw s a 6", "enter curator-1 f/rw s b 5"),
    "a writer among readers": (1, "enter zoolet-1 f/rw s a 5", "enter curator-1 f/rw x b 6"),
    "a reader with a writer": (1, "enter zoolet-1 f/rw x a 5", "enter curator-1 f/rw s b 6"),
    "two of two": (0, "enter zoolet-1 f/s 2 a 6", "enter curator-1 f/s 2 b 5"),
    "two of one": (1, "enter zoolet-1 f/s 1 a 5", "enter curator-1 f/s 1 b 6"),
}

for name, (expected, *lines) in CASES.items():
    assert wrong(*lines) == expected, f"{name}: {wrong(*lines)} instead of {expected}"
