// Survivors zookeeper|curator ADDRESS: a client that calls one server without retries and reports every answer, with ZooKeeper's own library or
// with Curator. survivors.py describes the protocol.

import java.nio.charset.StandardCharsets;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public final class Survivors {
    private static final int SESSION_MS = 15_000;
    private static final int PAUSE_MS = 5;
    // Wait for the event of a watch that the last write fired.
    private static final int EVENT_MS = 1000;

    // One client library. Each method is one call of it, without a retry.
    private interface Library {
        // Waits for a connection, and opens a new session if the last one has ended.
        void connect() throws Exception;

        String create(String path, CreateMode mode) throws Exception;

        int set(String path, byte[] data, int version) throws Exception;

        byte[] get(String path, Watcher watcher, Stat stat) throws Exception;

        Stat exists(String path) throws Exception;

        void sync(String path) throws Exception;

        long session() throws Exception;
    }

    private static final class Plain implements Library {
        private final String address;
        private ZooKeeper client;

        Plain(String address) {
            this.address = address;
        }

        @Override
        public void connect() throws Exception {
            while (client == null || !client.getState().isConnected()) {
                if (client == null || !client.getState().isAlive()) {
                    client = new ZooKeeper(address, SESSION_MS, event -> {
                        if (event.getType() == Watcher.Event.EventType.None) {
                            boolean isGood = event.getState() == Watcher.Event.KeeperState.SyncConnected;
                            say("state " + (isGood ? "connected" : event.getState()));
                        }
                    });
                }
                Thread.sleep(10);
            }
        }

        @Override
        public String create(String path, CreateMode mode) throws Exception {
            return client.create(path, bytes("0"), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
        }

        @Override
        public int set(String path, byte[] data, int version) throws Exception {
            return client.setData(path, data, version).getVersion();
        }

        @Override
        public byte[] get(String path, Watcher watcher, Stat stat) throws Exception {
            return client.getData(path, watcher, stat);
        }

        @Override
        public Stat exists(String path) throws Exception {
            return client.exists(path, false);
        }

        @Override
        public void sync(String path) throws Exception {
            CompletableFuture<Integer> answer = new CompletableFuture<>();
            client.sync(path, (code, at, context) -> answer.complete(code), null);
            check(answer.get());
        }

        @Override
        public long session() {
            return client.getSessionId();
        }
    }

    private static final class Curator implements Library {
        private final CuratorFramework client;

        Curator(String address) {
            client = CuratorFrameworkFactory.builder().connectString(address).sessionTimeoutMs(SESSION_MS).connectionTimeoutMs(5_000)
                .retryPolicy(new RetryNTimes(0, 0)).build();
            client.getConnectionStateListenable().addListener((framework, state) -> {
                boolean isGood = state == ConnectionState.CONNECTED || state == ConnectionState.RECONNECTED;
                say("state " + (isGood ? "connected" : state));
            });
            client.start();
        }

        @Override
        public void connect() throws Exception {
            client.blockUntilConnected();
        }

        @Override
        public String create(String path, CreateMode mode) throws Exception {
            return client.create().withMode(mode).forPath(path, bytes("0"));
        }

        @Override
        public int set(String path, byte[] data, int version) throws Exception {
            return client.setData().withVersion(version).forPath(path, data).getVersion();
        }

        @Override
        public byte[] get(String path, Watcher watcher, Stat stat) throws Exception {
            if (watcher == null) {
                return client.getData().storingStatIn(stat).forPath(path);
            }
            return client.getData().storingStatIn(stat).usingWatcher(watcher).forPath(path);
        }

        @Override
        public Stat exists(String path) throws Exception {
            return client.checkExists().forPath(path);
        }

        @Override
        public void sync(String path) throws Exception {
            CompletableFuture<Integer> answer = new CompletableFuture<>();
            client.sync().inBackground((framework, event) -> answer.complete(event.getResultCode())).forPath(path);
            check(answer.get());
        }

        @Override
        public long session() throws Exception {
            return client.getZookeeperClient().getZooKeeper().getSessionId();
        }
    }

    // The calls of one run.
    private static final class Load {
        private final Library library;
        private final String root;
        private volatile CountDownLatch fired = new CountDownLatch(1);
        private boolean isArmed;
        private final Stat stat = new Stat();

        Load(Library library, String root) {
            this.library = library;
            this.root = root;
        }

        void prepare() throws Exception {
            for (String path : new String[] {"", "/value", "/watched", "/parent"}) {
                make(root + path, CreateMode.PERSISTENT);
            }
            make(root + "/ephemeral", CreateMode.EPHEMERAL);
        }

        private void make(String path, CreateMode mode) throws Exception {
            try {
                library.create(path, mode);
            } catch (KeeperException.NodeExistsException exists) {
                // An earlier attempt made it.
            }
        }

        private interface Answer {
            String await() throws Exception;
        }

        // Makes one call and reports it. Returns whether it was answered.
        private boolean call(String name, Answer answer) throws InterruptedException {
            boolean isAnswered = false;
            try {
                String numbers = answer.await();
                say(name + " ok" + numbers);
                isAnswered = true;
            } catch (KeeperException error) {
                say(name + " failed " + error.code());
            } catch (Exception error) {
                say(name + " failed " + error.getClass().getSimpleName());
            }
            Thread.sleep(PAUSE_MS);
            return isAnswered;
        }

        void turn(int number) throws InterruptedException {
            String value = root + "/value";
            byte[] data = bytes(String.valueOf(number));
            call("set", () -> " " + library.set(value, data, -1) + " " + number);
            boolean isKnown = call("get", () -> {
                byte[] found = library.get(value, null, stat);
                return " " + stat.getVersion() + " " + new String(found, StandardCharsets.UTF_8);
            });
            if (number % 10 == 5 && isKnown) {
                int version = stat.getVersion();
                call("conditional", () -> " " + library.set(value, data, version) + " " + number);
            }
            if (number % 10 == 0) {
                call("create", () -> {
                    String path = library.create(root + "/parent/n-", CreateMode.PERSISTENT_SEQUENTIAL);
                    return " " + Integer.parseInt(path.substring(path.length() - 10));
                });
            }
            if (number % 25 == 0) {
                call("sync", () -> {
                    library.sync(value);
                    return "";
                });
            }
            if (number % 5 == 0) {
                watch(data);
            }
        }

        private void watch(byte[] data) throws InterruptedException {
            String watched = root + "/watched";
            if (isArmed) {
                if (!call("trigger", () -> " " + library.set(watched, data, -1))) {
                    return;
                }
                fired.await(EVENT_MS, TimeUnit.MILLISECONDS);
                isArmed = false;
            }
            fired = new CountDownLatch(1);
            isArmed = call("arm", () -> {
                library.get(watched, this::sayEvent, stat);
                return " " + stat.getVersion();
            });
        }

        private void sayEvent(WatchedEvent event) {
            if (event.getType() == Watcher.Event.EventType.NodeDataChanged) {
                say("event");
                fired.countDown();
            }
        }

        String owner() {
            try {
                Stat found = library.exists(root + "/ephemeral");
                return found == null ? "0" : Long.toHexString(found.getEphemeralOwner());
            } catch (Exception error) {
                return "?";
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[1];
        Library library = arguments[0].equals("curator") ? new Curator(address) : new Plain(address);
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        new Thread(() -> readCommands(commands)).start();
        while (true) {
            String run = commands.take().split(" ")[1];
            library.connect();
            Load load = new Load(library, "/survivors-" + arguments[0] + "-" + address.split(":")[0] + "-" + run);
            load.prepare();
            say("begun " + run + " " + Long.toHexString(library.session()));
            for (int number = 1; commands.isEmpty(); number++) {
                load.turn(number);
            }
            commands.take();
            String owner = load.owner();
            say("ended " + run + " " + session(library) + " " + owner);
        }
    }

    // Ends the process with its input.
    private static void readCommands(BlockingQueue<String> commands) {
        Scanner input = new Scanner(System.in, StandardCharsets.UTF_8);
        while (input.hasNextLine()) {
            commands.add(input.nextLine());
        }
        System.exit(0);
    }

    private static String session(Library library) {
        try {
            return Long.toHexString(library.session());
        } catch (Exception error) {
            return "0";
        }
    }

    private static void check(int code) throws KeeperException {
        if (code != 0) {
            throw KeeperException.create(KeeperException.Code.get(code));
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
