/*
 * survivors ADDRESS: a client of libzookeeper_mt that calls one server without retries and reports every answer.
 * survivors.py describes the protocol.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define SESSION_MS 15000
#define PAUSE_MS 5
/* Wait for the event of a watch that the last write fired. */
#define EVENT_MS 1000
#define PATH_BYTES 256

static zhandle_t *handle;
static char root[PATH_BYTES / 2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int has_fired;
static int is_synced;
static int sync_code;
static int is_armed;

static void say_state(zhandle_t *zh, int type, int state, const char *path, void *context) {
    (void)zh, (void)path, (void)context;
    if (type == ZOO_SESSION_EVENT) printf("state %s\n", state == ZOO_CONNECTED_STATE ? "connected" : state == ZOO_EXPIRED_SESSION_STATE ? "expired" : "connecting");
}

static void say_event(zhandle_t *zh, int type, int state, const char *path, void *context) {
    (void)zh, (void)state, (void)path, (void)context;
    if (type != ZOO_CHANGED_EVENT) return;
    puts("event");
    pthread_mutex_lock(&lock);
    has_fired = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_sync(int code, const char *value, const void *data) {
    (void)value, (void)data;
    pthread_mutex_lock(&lock);
    is_synced = 1;
    sync_code = code;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits until the flag is set, at most `milliseconds`; -1 waits without a bound. */
static void wait_for(int *flag, long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    while (!*flag) {
        if (milliseconds < 0) pthread_cond_wait(&changed, &lock);
        else if (pthread_cond_timedwait(&changed, &lock, &until) != 0) break;
    }
    pthread_mutex_unlock(&lock);
}

static void sleep_ms(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Waits for a connection, and opens a new session if the last one has ended. */
static void connect_to(const char *address) {
    while (handle == NULL || zoo_state(handle) != ZOO_CONNECTED_STATE) {
        if (handle != NULL && is_unrecoverable(handle)) {
            zookeeper_close(handle);
            handle = NULL;
        }
        if (handle == NULL) handle = zookeeper_init(address, say_state, SESSION_MS, NULL, NULL, 0);
        sleep_ms(10);
    }
}

static const char *at(char *path, const char *name) {
    snprintf(path, PATH_BYTES, "%s%s", root, name);
    return path;
}

static void make(const char *name, int flags) {
    char path[PATH_BYTES];
    int code = zoo_create(handle, at(path, name), "0", 1, &ZOO_OPEN_ACL_UNSAFE, flags, NULL, 0);
    if (code != ZOK && code != ZNODEEXISTS) {
        printf("error cannot create %s: %s\n", path, zerror(code));
        exit(1);
    }
}

/* Reports a call. Returns whether it was answered. */
static int report(const char *name, int code, const char *numbers) {
    if (code == ZOK) printf("%s ok %s\n", name, numbers);
    else if (code == ZBADVERSION) printf("%s failed BADVERSION\n", name);
    else if (code == ZCONNECTIONLOSS) printf("%s failed CONNECTIONLOSS\n", name);
    else printf("%s failed %s\n", name, zerror(code));
    sleep_ms(PAUSE_MS);
    return code == ZOK;
}

static int set(const char *name, const char *znode, int number, int version) {
    char path[PATH_BYTES], data[32], numbers[64];
    struct Stat stat = {0};
    int length = snprintf(data, sizeof data, "%d", number);
    int code = zoo_set2(handle, at(path, znode), data, length, version, &stat);
    snprintf(numbers, sizeof numbers, "%d %d", stat.version, number);
    return report(name, code, numbers);
}

/* Returns the version of the value, or -1. */
static int get(void) {
    char path[PATH_BYTES], data[32] = "", numbers[80];
    struct Stat stat = {0};
    int length = sizeof data - 1;
    int code = zoo_get(handle, at(path, "/value"), 0, data, &length, &stat);
    data[code == ZOK && length > 0 ? length : 0] = 0;
    snprintf(numbers, sizeof numbers, "%d %s", stat.version, data);
    return report("get", code, numbers) ? stat.version : -1;
}

static void create_sequential(void) {
    char path[PATH_BYTES], made[PATH_BYTES] = "", numbers[32] = "";
    int code = zoo_create(handle, at(path, "/parent/n-"), "0", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, made, sizeof made);
    if (code == ZOK) snprintf(numbers, sizeof numbers, "%d", atoi(made + strlen(made) - 10));
    report("create", code, numbers);
}

static void sync_value(void) {
    char path[PATH_BYTES];
    is_synced = 0;
    int code = zoo_async(handle, at(path, "/value"), on_sync, NULL);
    if (code == ZOK) {
        wait_for(&is_synced, -1);
        code = sync_code;
    }
    report("sync", code, "");
}

static void watch(int number) {
    char path[PATH_BYTES], data[32], numbers[32];
    struct Stat stat = {0};
    int length = sizeof data;
    if (is_armed) {
        if (!set("trigger", "/watched", number, -1)) return;
        wait_for(&has_fired, EVENT_MS);
        is_armed = 0;
    }
    pthread_mutex_lock(&lock);
    has_fired = 0;
    pthread_mutex_unlock(&lock);
    int code = zoo_wget(handle, at(path, "/watched"), say_event, NULL, data, &length, &stat);
    snprintf(numbers, sizeof numbers, "%d", stat.version);
    is_armed = report("arm", code, numbers);
}

static void turn(int number) {
    set("set", "/value", number, -1);
    int version = get();
    if (number % 10 == 5 && version >= 0) set("conditional", "/value", number, version);
    if (number % 10 == 0) create_sequential();
    if (number % 25 == 0) sync_value();
    if (number % 5 == 0) watch(number);
}

static int has_command(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
}

/* Reads a command. Exits at the end of the input. */
static void read_command(char *line, size_t bytes) {
    size_t length = 0;
    while (length + 1 < bytes) {
        if (read(0, line + length, 1) <= 0) exit(0);
        if (line[length] == '\n') break;
        length++;
    }
    line[length] = 0;
}

int main(int count, char **arguments) {
    char line[64], path[PATH_BYTES], host[64] = "";
    if (count != 2) return 2;
    const char *address = arguments[1];
    sscanf(address, "%63[^:]", host);
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(0);
    for (;;) {
        int run = 0;
        read_command(line, sizeof line);
        sscanf(line, "begin %d", &run);
        connect_to(address);
        snprintf(root, sizeof root, "/survivors-c-%s-%d", host, run);
        is_armed = 0;
        make("", 0);
        make("/value", 0);
        make("/watched", 0);
        make("/parent", 0);
        make("/ephemeral", ZOO_EPHEMERAL);
        printf("begun %d %llx\n", run, (unsigned long long)zoo_client_id(handle)->client_id);
        for (int number = 1; !has_command(); number++) turn(number);
        read_command(line, sizeof line);
        struct Stat stat = {0};
        int code = zoo_exists(handle, at(path, "/ephemeral"), 0, &stat);
        char owner[32] = "?";
        if (code == ZNONODE) strcpy(owner, "0");
        if (code == ZOK) snprintf(owner, sizeof owner, "%llx", (unsigned long long)stat.ephemeralOwner);
        printf("ended %d %llx %s\n", run, (unsigned long long)zoo_client_id(handle)->client_id, owner);
    }
}
