// CuratorFleet PROCESS HOSTS JOURNAL: contenders of stock Curator in the fleets `curator` and `all`, until a line comes in.
// CuratorFleet hold HOSTS PATH: takes a mutex, says so, and has it until a line comes in.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.LockPath;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class CuratorFleet {
    private static final int SESSION_MS = 8_000;
    private static final int ASK_AFTER_MS = 500;
    private static final int PERMITS = 2;
    private static String process;
    private static FileChannel journal;
    private static volatile boolean isOver;

    private interface Turn {
        void take(Contender contender) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("hold")) {
            hold(arguments[1], arguments[2]);
            return;
        }
        process = arguments[0];
        journal = FileChannel.open(Path.of(arguments[2]), StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        List<Contender> contenders = new ArrayList<>();
        for (String fleet : new String[] {"curator", "all"}) {
            contenders.add(new Contender(arguments[1], fleet + "/mutex", CuratorFleet::mutex));
            contenders.add(new Contender(arguments[1], fleet + "/read-write", CuratorFleet::readWrite));
            contenders.add(new Contender(arguments[1], fleet + "/election", CuratorFleet::latch));
        }
        contenders.add(new Contender(arguments[1], "curator/semaphore", CuratorFleet::semaphore));
        contenders.add(new Contender(arguments[1], "curator/revocable", CuratorFleet::revocable));
        contenders.forEach(Thread::start);
        System.in.read();
        isOver = true;
        for (Contender contender : contenders) {
            contender.join();
        }
        System.out.println("idle");
        System.exit(0);
    }

    /** One line in one call: appends of several processes never mix. */
    private static void tell(String what, String words) {
        try {
            journal.write(ByteBuffer.wrap((what + " " + process + " " + words + "\n").getBytes(StandardCharsets.UTF_8)));
        } catch (IOException failure) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static CuratorFramework client(String hosts) {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(SESSION_MS)
            .connectionTimeoutMs(5_000).retryPolicy(new RetryNTimes(600, 100)).build();
        client.start();
        return client;
    }

    private static void hold(String hosts, String path) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client(hosts), path);
        mutex.acquire();
        System.out.println("held");
        System.in.read();
        mutex.release();
        System.exit(0);
    }

    /** One contender: a thread and a client. */
    private static final class Contender extends Thread {
        private final CuratorFramework client;
        private final String name;
        private final Turn turn;
        private long told;

        Contender(String hosts, String name, Turn turn) {
            this.client = client(hosts);
            this.name = name;
            this.turn = turn;
            client.getConnectionStateListenable().addListener((one, state) -> {
                if (state == ConnectionState.LOST) {
                    tell("lost", Long.toHexString(told));
                }
            });
        }

        String path() {
            return "/mixed/" + name;
        }

        void announce() throws Exception {
            ZooKeeper zookeeper = client.getZookeeperClient().getZooKeeper();
            long session = zookeeper.getSessionId();
            if (session != 0 && session != told) {
                told = session;
                tell("session", Long.toHexString(session) + " " + HexFormat.of().formatHex(zookeeper.getSessionPasswd()));
            }
        }

        @Override
        public void run() {
            while (!isOver) {
                try {
                    announce();
                    turn.take(this);
                } catch (Exception failure) {
                    tell("failed", name + " " + failure);
                    nap(100);
                }
            }
            client.close();
        }

        /** Under the name that the server has: a session may have ended since, and with it the znode. */
        void inside(String mode, String znode, Runnable during) throws Exception {
            Stat stat = client.checkExists().forPath(znode);
            if (stat == null) {
                return;
            }
            announce();
            String who = name + " " + mode + " " + Long.toHexString(stat.getEphemeralOwner()) + " " + stat.getCzxid();
            tell("enter", who);
            during.run();
            tell("leave", who);
        }
    }

    private static void nap(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static void mutex(Contender contender) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(contender.client, contender.path());
        take(contender, mutex, "x");
    }

    private static void readWrite(Contender contender) throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(contender.client, contender.path());
        boolean writes = ThreadLocalRandom.current().nextInt(3) == 0;
        take(contender, writes ? lock.writeLock() : lock.readLock(), writes ? "x" : "s");
    }

    private static void take(Contender contender, InterProcessMutex mutex, String mode) throws Exception {
        mutex.acquire();
        try {
            contender.inside(mode, LockPath.of(mutex), () -> nap(2));
        } finally {
            mutex.release();
        }
    }

    private static void latch(Contender contender) throws Exception {
        try (LeaderLatch latch = new LeaderLatch(contender.client, contender.path(), process)) {
            latch.start();
            latch.await();
            String znode = latch.getOurPath();
            // After the loss of its session it stands anew under another name, and does not lead.
            if (znode != null && latch.hasLeadership() && znode.equals(latch.getLastPathIsLeader())) {
                contender.inside("x", znode, () -> nap(2));
            }
        }
    }

    private static void semaphore(Contender contender) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(contender.client, contender.path(), PERMITS);
        Lease lease = semaphore.acquire();
        try {
            contender.inside("2", contender.path() + "/leases/" + lease.getNodeName(), () -> nap(2));
        } finally {
            semaphore.returnLease(lease);
        }
    }

    /** Holds until it is asked to release, and asks holders of zoolet while it waits. */
    private static void revocable(Contender contender) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(contender.client, contender.path());
        CountDownLatch asked = new CountDownLatch(1);
        mutex.makeRevocable(one -> asked.countDown());
        CountDownLatch waited = new CountDownLatch(1);
        Thread asking = new Thread(() -> askAnother(contender, mutex, waited));
        asking.start();
        try {
            mutex.acquire();
        } finally {
            waited.countDown();
            asking.join();
        }
        try {
            contender.inside("x", LockPath.of(mutex), () -> {
                try {
                    while (!isOver && mutex.isAcquiredInThisProcess() && contender.client.checkExists().forPath(LockPath.of(mutex)) != null) {
                        if (asked.await(ASK_AFTER_MS, TimeUnit.MILLISECONDS)) {
                            tell("asked", contender.name);
                            return;
                        }
                    }
                } catch (Exception failure) {
                    tell("failed", contender.name + " " + failure);
                }
            });
        } finally {
            mutex.release();
        }
    }

    private static void askAnother(Contender contender, InterProcessMutex mutex, CountDownLatch waited) {
        try {
            while (!waited.await(ASK_AFTER_MS, TimeUnit.MILLISECONDS)) {
                for (String first : mutex.getParticipantNodes()) {
                    byte[] content = contender.client.getData().forPath(first);
                    if (content != null && new String(content, StandardCharsets.UTF_8).startsWith("zoolet")) {
                        Revoker.attemptRevoke(contender.client, first);
                    }
                    break;
                }
            }
        } catch (Exception failure) {
            // Whoever was first has gone, and this one asks nobody in this turn any more.
            tell("failed", contender.name + " " + failure.getClass().getSimpleName());
        }
    }
}
