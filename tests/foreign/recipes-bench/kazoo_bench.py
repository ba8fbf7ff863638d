"""kazoo_bench.py HOSTS SHAPE SECONDS: measures kazoo's recipes, and prints one line of JSON.

The method is that of zoolet-recipes-bench for zoolet's recipes.
"""

import json
import logging
import sys
import threading
import time
import uuid

from kazoo.client import KazooClient

SESSIONS_MAX, WATCHERS, ITEMS = 50, 1000, 500
HOSTS, SHAPE, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
PATH = f"/bench-{uuid.uuid4().hex}"


def connect():
    client = KazooClient(HOSTS, timeout=30)
    client.start(timeout=60)
    return client


def sessions(wanted):
    return [connect() for _ in range(min(wanted, SESSIONS_MAX))]


def percentiles(seconds):
    ordered = sorted(seconds)
    return {"count": len(ordered), **{f"p{part}": ordered[len(ordered) * part // 100] * 1e6 for part in (50, 99)}}


def write(client):
    began = time.perf_counter()
    client.set(PATH, b"x" * 100)
    return time.perf_counter() - began


def lock(client):
    one = client.Lock(PATH + "/lock")
    with one:
        pass
    takes, cycles, writes = [], [], []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        one.acquire()
        takes.append(time.perf_counter() - began)
        one.release()
        cycles.append(time.perf_counter() - began)
        writes.append(write(client))
    take, wrote = percentiles(takes), percentiles(writes)
    return {
        "per_second": len(cycles) / sum(cycles),
        "cycle_us": percentiles(cycles),
        "take_us": take,
        "write_us": wrote,
        "take_per_write": take["p50"] / wrote["p50"],
    }


def contended(contenders):
    clients, over, begin = sessions(contenders), threading.Event(), threading.Barrier(contenders + 1)
    counts = [0] * contenders

    def contend(number):
        one = clients[number % len(clients)].Lock(PATH + "/lock")
        begin.wait()
        while not over.is_set():
            with one:
                pass
            counts[number] += not over.is_set()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(contenders)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    time.sleep(SECONDS)
    seconds = time.perf_counter() - began
    over.set()
    for thread in threads:
        thread.join()
    return {"per_second": sum(counts) / seconds, "least": min(counts), "most": max(counts)}


def hand_over(client):
    locks = [one.Lock(PATH + "/lock") for one in sessions(2)]
    hand_overs, writes, turn = [], [], 0
    locks[0].acquire()
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        granted = []

        def wait(one):
            one.acquire()
            granted.append(time.perf_counter())

        waiter = threading.Thread(target=wait, args=(locks[1 - turn],))
        waiter.start()
        while len(client.get_children(PATH + "/lock")) < 2:
            pass
        # By now the next contender has found its predecessor, and watches it.
        time.sleep(0.002)
        writes.append(write(client))
        began = time.perf_counter()
        locks[turn].release()
        waiter.join()
        hand_overs.append(granted[0] - began)
        turn = 1 - turn
    over, wrote = percentiles(hand_overs), percentiles(writes)
    return {"handover_us": over, "write_us": wrote, "handover_per_write": over["p50"] / wrote["p50"]}


def queue():
    one, two = sessions(2)
    producer, consumer = one.Queue(PATH + "/queue"), two.Queue(PATH + "/queue")
    putting = taking = items = 0
    while putting + taking < SECONDS:
        began = time.perf_counter()
        for _ in range(ITEMS):
            producer.put(b"x" * 100)
        putting += time.perf_counter() - began
        # After the sync, the consumer's server knows all items.
        two.sync(PATH)
        began, taken = time.perf_counter(), 0
        while taken < ITEMS:
            taken += consumer.get() is not None
        taking += time.perf_counter() - began
        items += ITEMS
    return {"per_second": items / (putting + taking), "puts_per_second": items / putting, "takes_per_second": items / taking}


def fan_out(client):
    clients, seen, guard, told = sessions(SESSIONS_MAX), 0, threading.Lock(), threading.Semaphore(0)

    def hear(*_):
        nonlocal seen
        with guard:
            seen += 1
            is_last = seen % WATCHERS == 0
        if is_last:
            told.release()

    for number in range(WATCHERS):
        clients[number % len(clients)].DataWatch(PATH, hear)
    told.acquire()
    every, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        client.set(PATH, b"x" * 100)
        told.acquire()
        every.append(time.perf_counter() - began)
    return {"all_told_us": percentiles(every), "watchers": WATCHERS, "sessions": len(clients)}


def main():
    logging.basicConfig(level=logging.CRITICAL)
    client = connect()
    client.create(PATH)
    shape, _, count = SHAPE.partition("-")
    shapes = {
        "lock": lambda: lock(client),
        "contended": lambda: contended(int(count)),
        "handover": lambda: hand_over(client),
        "queue": queue,
        "fanout": lambda: fan_out(client),
    }
    print(json.dumps(shapes[shape]()), flush=True)


main()
