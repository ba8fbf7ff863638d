// CuratorBench HOSTS SHAPE SECONDS: Curator's recipes, measured as zoolet-recipes-bench measures zoolet's. Prints one line of JSON.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.retry.RetryNTimes;

public final class CuratorBench {
    private static final int SESSIONS_MAX = 50, WATCHERS = 1000, ITEMS = 500;
    private static final byte[] DATA = "x".repeat(100).getBytes();
    private static final String PATH = "/bench-" + UUID.randomUUID();
    private static String hosts;
    private static double seconds;
    private static volatile boolean isOver;

    public static void main(String[] arguments) throws Exception {
        hosts = arguments[0];
        seconds = Double.parseDouble(arguments[2]);
        CuratorFramework client = connect();
        client.create().forPath(PATH);
        String[] shape = arguments[1].split("-");
        switch (shape[0]) {
            case "lock" -> lock(client);
            case "contended" -> contended(Integer.parseInt(shape[1]));
            case "handover" -> handOver(client);
            case "queue" -> queue();
            case "fanout" -> fanOut(client);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.exit(0);
    }

    private static CuratorFramework connect() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(30_000)
            .connectionTimeoutMs(15_000).retryPolicy(new RetryNTimes(100, 100)).build();
        client.start();
        client.blockUntilConnected(60, TimeUnit.SECONDS);
        return client;
    }

    private static List<CuratorFramework> sessions(int wanted) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int number = 0; number < Math.min(wanted, SESSIONS_MAX); number++) {
            clients.add(connect());
        }
        return clients;
    }

    private static final class Times {
        private final List<Long> all = new ArrayList<>();

        void since(long began) {
            all.add(System.nanoTime() - began);
        }

        double at(int part) {
            long[] sorted = all.stream().mapToLong(Long::longValue).toArray();
            Arrays.sort(sorted);
            return sorted[sorted.length * part / 100] / 1e3;
        }

        double sum() {
            return all.stream().mapToLong(Long::longValue).sum() / 1e9;
        }

        @Override
        public String toString() {
            return "{\"count\":" + all.size() + ",\"p50\":" + at(50) + ",\"p99\":" + at(99) + "}";
        }
    }

    private static boolean isTime(long began) {
        return System.nanoTime() - began < seconds * 1e9;
    }

    private static void write(CuratorFramework client, Times times) throws Exception {
        long began = System.nanoTime();
        client.setData().forPath(PATH, DATA);
        times.since(began);
    }

    private static void lock(CuratorFramework client) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, PATH + "/lock");
        Times takes = new Times(), cycles = new Times(), writes = new Times();
        for (long start = System.nanoTime(); isTime(start);) {
            long began = System.nanoTime();
            mutex.acquire();
            takes.since(began);
            mutex.release();
            cycles.since(began);
            write(client, writes);
        }
        System.out.println("{\"per_second\":" + cycles.all.size() / cycles.sum() + ",\"cycle_us\":" + cycles + ",\"take_us\":" + takes
            + ",\"write_us\":" + writes + ",\"take_per_write\":" + takes.at(50) / writes.at(50) + "}");
    }

    private static void contended(int contenders) throws Exception {
        List<CuratorFramework> clients = sessions(contenders);
        long[] counts = new long[contenders];
        CyclicBarrier begin = new CyclicBarrier(contenders + 1);
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < contenders; each++) {
            int number = each;
            Thread thread = new Thread(() -> {
                InterProcessMutex mutex = new InterProcessMutex(clients.get(number % clients.size()), PATH + "/lock");
                try {
                    begin.await();
                    while (!isOver) {
                        mutex.acquire();
                        mutex.release();
                        counts[number] += isOver ? 0 : 1;
                    }
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            });
            thread.start();
            threads.add(thread);
        }
        begin.await();
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        double took = (System.nanoTime() - began) / 1e9;
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("{\"per_second\":" + Arrays.stream(counts).sum() / took + ",\"least\":" + Arrays.stream(counts).min().getAsLong()
            + ",\"most\":" + Arrays.stream(counts).max().getAsLong() + "}");
    }

    private static void handOver(CuratorFramework client) throws Exception {
        List<CuratorFramework> clients = sessions(2);
        Times handOvers = new Times(), writes = new Times();
        // A mutex belongs to the thread that took it, so each contender is a thread; they take turns to wait.
        Semaphore[] mayWait = {new Semaphore(0), new Semaphore(0)}, mayRelease = {new Semaphore(0), new Semaphore(0)};
        Semaphore granted = new Semaphore(0);
        AtomicLong at = new AtomicLong(), began = new AtomicLong();
        for (int each = 0; each < 2; each++) {
            int number = each;
            Thread thread = new Thread(() -> {
                InterProcessMutex mutex = new InterProcessMutex(clients.get(number), PATH + "/lock");
                try {
                    while (true) {
                        mayWait[number].acquire();
                        mutex.acquire();
                        at.set(System.nanoTime());
                        granted.release();
                        mayRelease[number].acquire();
                        began.set(System.nanoTime());
                        mutex.release();
                    }
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        mayWait[0].release();
        granted.acquire();
        int turn = 0;
        for (long start = System.nanoTime(); isTime(start); turn = 1 - turn) {
            mayWait[1 - turn].release();
            while (client.getChildren().forPath(PATH + "/lock").size() < 2) {
                Thread.onSpinWait();
            }
            // The next one has looked at who is before it, and watches it.
            Thread.sleep(2);
            write(client, writes);
            mayRelease[turn].release();
            granted.acquire();
            handOvers.all.add(at.get() - began.get());
        }
        System.out.println("{\"handover_us\":" + handOvers + ",\"write_us\":" + writes + ",\"handover_per_write\":" + handOvers.at(50) / writes.at(50) + "}");
    }

    private static void queue() throws Exception {
        List<CuratorFramework> clients = sessions(2);
        SimpleDistributedQueue producer = new SimpleDistributedQueue(clients.get(0), PATH + "/queue");
        SimpleDistributedQueue consumer = new SimpleDistributedQueue(clients.get(1), PATH + "/queue");
        double putting = 0, taking = 0;
        long items = 0;
        while (putting + taking < seconds) {
            long began = System.nanoTime();
            for (int item = 0; item < ITEMS; item++) {
                producer.offer(DATA);
            }
            putting += (System.nanoTime() - began) / 1e9;
            // The consumer's server knows of all of them.
            clients.get(1).sync().forPath(PATH);
            began = System.nanoTime();
            for (int item = 0; item < ITEMS; item++) {
                consumer.take();
            }
            taking += (System.nanoTime() - began) / 1e9;
            items += ITEMS;
        }
        System.out.println("{\"per_second\":" + items / (putting + taking) + ",\"puts_per_second\":" + items / putting + ",\"takes_per_second\":" + items / taking + "}");
    }

    private static void fanOut(CuratorFramework client) throws Exception {
        List<CuratorFramework> clients = sessions(SESSIONS_MAX);
        AtomicLong seen = new AtomicLong();
        Semaphore told = new Semaphore(0);
        for (int number = 0; number < WATCHERS; number++) {
            CuratorCache cache = CuratorCache.build(clients.get(number % clients.size()), PATH, CuratorCache.Options.SINGLE_NODE_CACHE);
            cache.listenable().addListener((type, before, after) -> {
                if (seen.incrementAndGet() % WATCHERS == 0) {
                    told.release();
                }
            });
            cache.start();
        }
        told.acquire();
        Times all = new Times();
        for (long start = System.nanoTime(); isTime(start);) {
            long began = System.nanoTime();
            client.setData().forPath(PATH, DATA);
            told.acquire();
            all.since(began);
        }
        System.out.println("{\"all_told_us\":" + all + ",\"watchers\":" + WATCHERS + ",\"sessions\":" + clients.size() + "}");
    }
}
