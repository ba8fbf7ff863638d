// Recipes HOSTS SECONDS: Curator's recipes against an ensemble whose servers are killed meanwhile. With a retry policy no call fails; locks
// exclude, leaders are single, counters add up, ephemeral znodes stay, caches catch up. Ends with `N passed, N failed`.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

public final class Recipes {
    private static final int CLIENTS = 3;
    private static final int SESSION_MS = 20_000;
    private static String hosts;
    private static long until;

    private interface Recipe {
        String run(List<CuratorFramework> clients) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        hosts = arguments[0];
        int seconds = Integer.parseInt(arguments[1]);
        List<CuratorFramework> clients = new ArrayList<>();
        for (int client = 0; client < CLIENTS; client++) {
            // A server that was killed is back within seconds: 600 attempts of 100 ms outlast it.
            CuratorFramework one = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(SESSION_MS)
                .connectionTimeoutMs(5_000).retryPolicy(new RetryNTimes(600, 100)).build();
            one.start();
            if (!one.blockUntilConnected(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no connection");
            }
            clients.add(one);
        }
        until = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        // All at the same time: each kill then meets all of them.
        String[] names = {"mutex", "read-write lock", "semaphore", "atomic long", "leader latch", "persistent node", "cache", "barrier", "plain calls"};
        Recipe[] recipes = {Recipes::mutex, Recipes::readWrite, Recipes::semaphore, Recipes::atomicLong, Recipes::latch,
            Recipes::persistentNode, Recipes::cache, Recipes::barrier, Recipes::calls};
        ExecutorService pool = Executors.newCachedThreadPool();
        List<Future<String>> running = new ArrayList<>();
        for (Recipe recipe : recipes) {
            running.add(pool.submit(() -> recipe.run(clients)));
        }
        int passed = 0, failed = 0;
        for (int at = 0; at < recipes.length; at++) {
            try {
                System.out.println("ok: " + names[at] + ": " + running.get(at).get(seconds + 120, TimeUnit.SECONDS));
                passed++;
            } catch (Exception failure) {
                System.out.println("FAILED: " + names[at]);
                failure.printStackTrace(System.out);
                failed++;
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 ? 1 : 0);
    }

    private static boolean isOver() {
        return System.nanoTime() > until;
    }

    private static void must(boolean is, String what) {
        if (!is) {
            throw new IllegalStateException(what);
        }
    }

    /** Runs the same on every client, and waits for all. */
    private static <T> List<T> each(List<CuratorFramework> clients, java.util.function.Function<CuratorFramework, Callable<T>> what) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool();
        List<Future<T>> running = new ArrayList<>();
        for (CuratorFramework client : clients) {
            running.add(pool.submit(what.apply(client)));
        }
        List<T> results = new ArrayList<>();
        for (Future<T> one : running) {
            results.add(one.get());
        }
        pool.shutdown();
        return results;
    }

    private static long number(byte[] data) {
        return Long.parseLong(new String(data, StandardCharsets.UTF_8));
    }

    private static byte[] text(long number) {
        return Long.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    /** A counter in the tree that is read and written under a lock without any other care: a lock that two hold loses counts. */
    private static String mutex(List<CuratorFramework> clients) throws Exception {
        clients.get(0).create().creatingParentsIfNeeded().forPath("/mutex/counter", text(0));
        AtomicInteger inside = new AtomicInteger();
        List<Long> counts = each(clients, client -> () -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/mutex/lock");
            long count = 0;
            while (!isOver()) {
                mutex.acquire();
                try {
                    must(inside.incrementAndGet() == 1, "two hold the lock");
                    client.setData().forPath("/mutex/counter", text(number(client.getData().forPath("/mutex/counter")) + 1));
                    count++;
                } finally {
                    inside.decrementAndGet();
                    mutex.release();
                }
            }
            return count;
        });
        long expected = counts.stream().mapToLong(Long::longValue).sum();
        clients.get(0).sync().forPath("/mutex/counter");
        must(number(clients.get(0).getData().forPath("/mutex/counter")) == expected, "counts are lost");
        must(expected > 0, "nobody ever held it");
        return expected + " times held";
    }

    private static String readWrite(List<CuratorFramework> clients) throws Exception {
        AtomicInteger writers = new AtomicInteger(), readers = new AtomicInteger();
        List<Long> counts = each(clients, client -> () -> {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, "/read-write");
            long count = 0;
            while (!isOver()) {
                boolean writes = count % 3 == 0;
                InterProcessMutex side = writes ? lock.writeLock() : lock.readLock();
                side.acquire();
                try {
                    int nowWriting = writes ? writers.incrementAndGet() : writers.get();
                    int nowReading = writes ? readers.get() : readers.incrementAndGet();
                    must(writes ? nowWriting == 1 && nowReading == 0 : nowWriting == 0, nowWriting + " write and " + nowReading + " read");
                    Thread.sleep(2);
                } finally {
                    (writes ? writers : readers).decrementAndGet();
                    side.release();
                }
                count++;
            }
            return count;
        });
        return counts + " times held";
    }

    private static String semaphore(List<CuratorFramework> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Long> counts = each(clients, client -> () -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/semaphore", 2);
            long count = 0;
            while (!isOver()) {
                Lease lease = semaphore.acquire();
                try {
                    must(inside.incrementAndGet() <= 2, "more than two leases");
                    Thread.sleep(2);
                } finally {
                    inside.decrementAndGet();
                    semaphore.returnLease(lease);
                }
                count++;
            }
            return count;
        });
        return counts + " leases";
    }

    /** An increment may be made although its answer was lost, then it is retried: the sum is at least what succeeded. */
    private static String atomicLong(List<CuratorFramework> clients) throws Exception {
        List<Long> counts = each(clients, client -> () -> {
            DistributedAtomicLong counter = new DistributedAtomicLong(client, "/atomic", new RetryNTimes(600, 10));
            long count = 0;
            while (!isOver()) {
                AtomicValue<Long> value = counter.increment();
                if (value.succeeded()) {
                    must(value.postValue() == value.preValue() + 1, "an increment by another number");
                    count++;
                }
            }
            return count;
        });
        long least = counts.stream().mapToLong(Long::longValue).sum();
        long found = new DistributedAtomicLong(clients.get(0), "/atomic", new RetryNTimes(600, 10)).get().postValue();
        must(found >= least, found + " after " + least + " increments");
        must(least > 0, "no increment succeeded");
        return least + " increments, " + (found - least) + " made twice";
    }

    private static String latch(List<CuratorFramework> clients) throws Exception {
        AtomicInteger leading = new AtomicInteger();
        List<Long> counts = each(clients, client -> () -> {
            long terms = 0;
            while (!isOver()) {
                LeaderLatch latch = new LeaderLatch(client, "/latch");
                latch.start();
                try {
                    while (!isOver() && !latch.await(500, TimeUnit.MILLISECONDS)) {
                    }
                    if (latch.hasLeadership()) {
                        int now = leading.incrementAndGet();
                        // Whoever has lost the connection knows it at once; whoever has not must be alone.
                        must(now == 1 || !latch.hasLeadership(), "two lead");
                        Thread.sleep(20);
                        leading.decrementAndGet();
                        terms++;
                    }
                } finally {
                    latch.close();
                }
            }
            return terms;
        });
        must(counts.stream().mapToLong(Long::longValue).sum() > 0, "nobody ever led");
        return counts + " terms";
    }

    private static String persistentNode(List<CuratorFramework> clients) throws Exception {
        CuratorFramework client = clients.get(0), other = clients.get(1);
        PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL, false, "/persistent", text(7));
        node.start();
        must(node.waitForInitialCreate(60, TimeUnit.SECONDS), "it is never created");
        long owner = other.checkExists().forPath("/persistent").getEphemeralOwner();
        long looks = 0;
        while (!isOver()) {
            other.sync().forPath("/persistent");
            must(other.checkExists().forPath("/persistent") != null, "it is gone although its session lives");
            looks++;
            Thread.sleep(10);
        }
        must(other.checkExists().forPath("/persistent").getEphemeralOwner() == owner, "its session was lost");
        node.close();
        return looks + " looks";
    }

    /** One client changes a subtree, another one's cache must show the same in the end. */
    private static String cache(List<CuratorFramework> clients) throws Exception {
        CuratorFramework writer = clients.get(0), reader = clients.get(2);
        writer.create().forPath("/cache");
        CuratorCache cache = CuratorCache.build(reader, "/cache");
        AtomicLong events = new AtomicLong();
        cache.listenable().addListener((type, before, after) -> events.incrementAndGet());
        cache.start();
        long changes = 0;
        while (!isOver()) {
            String path = "/cache/" + changes % 20;
            if (writer.checkExists().forPath(path) == null) {
                writer.create().orSetData().forPath(path, text(changes));
            } else if (changes % 7 == 0) {
                writer.delete().quietly().forPath(path);
            } else {
                writer.setData().forPath(path, text(changes));
            }
            changes++;
        }
        long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        String difference = difference(writer, cache);
        while (difference != null && System.nanoTime() < patience) {
            Thread.sleep(100);
            difference = difference(writer, cache);
        }
        must(difference == null, difference);
        cache.close();
        return changes + " changes, " + events.get() + " events";
    }

    private static String difference(CuratorFramework client, CuratorCache cache) throws Exception {
        List<String> children = client.getChildren().forPath("/cache");
        if (cache.size() != children.size() + 1) {
            return "the cache has " + cache.size() + " znodes, the tree " + (children.size() + 1);
        }
        for (String child : children) {
            byte[] there = client.getData().forPath("/cache/" + child);
            Optional<ChildData> cached = cache.get("/cache/" + child);
            if (cached.isEmpty() || !java.util.Arrays.equals(cached.get().getData(), there)) {
                return child + " differs";
            }
        }
        return null;
    }

    /** Not the double barrier: that recipe gives up by itself when a connection is lost. */
    private static String barrier(List<CuratorFramework> clients) throws Exception {
        long rounds = 0;
        while (!isOver()) {
            AtomicInteger through = new AtomicInteger();
            String path = "/barrier-" + rounds;
            DistributedBarrier gate = new DistributedBarrier(clients.get(0), path);
            gate.setBarrier();
            ExecutorService pool = Executors.newCachedThreadPool();
            List<Future<Boolean>> waiting = new ArrayList<>();
            for (CuratorFramework client : clients.subList(1, clients.size())) {
                // A server that is behind does not know the barrier yet.
                client.sync().forPath(path);
                waiting.add(pool.submit(() -> {
                    boolean opened = new DistributedBarrier(client, path).waitOnBarrier(60, TimeUnit.SECONDS);
                    through.incrementAndGet();
                    return opened;
                }));
            }
            Thread.sleep(20);
            must(through.get() == 0, "somebody went through a barrier that is set");
            gate.removeBarrier();
            for (Future<Boolean> one : waiting) {
                must(one.get(), "a barrier that is gone still stops somebody");
            }
            pool.shutdown();
            rounds++;
        }
        return rounds + " rounds";
    }

    /** Calls of every kind, none of which may fail. */
    private static String calls(List<CuratorFramework> clients) throws Exception {
        clients.get(0).create().forPath("/calls");
        List<Long> counts = each(clients, client -> () -> {
            String mine = client.create().withProtection().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/calls/of-", text(0));
            long count = 0;
            while (!isOver()) {
                client.setData().forPath(mine, text(count));
                must(number(client.getData().forPath(mine)) == count, "a client does not see its own write");
                String child = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(mine + "/e-");
                client.delete().quietly().forPath(child);
                client.getChildren().forPath("/calls");
                count++;
            }
            return count;
        });
        must(counts.stream().allMatch(count -> count > 0), "a client gets nowhere");
        return counts + " turns";
    }
}
