package org.apache.curator.framework.recipes.locks;

/** The znode of a lock, which Curator shows to its own package only. */
public final class LockPath {
    private LockPath() {
    }

    public static String of(InterProcessMutex mutex) {
        return mutex.getLockPath();
    }
}
