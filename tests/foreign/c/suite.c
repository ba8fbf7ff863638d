/*
 * The C client (libzookeeper_mt) against one server, which this program starts, kills and starts again itself.
 *
 *   suite HOST:PORT SERVER_COMMAND...          runs every test, ends with `N passed, N failed`
 *   suite --sleeper HOST:PORT PATH             a second process that the tests stop and continue (see sleeper())
 *
 * The server must run with tickTime 1000, so that session timeouts lie between 2 and 20 seconds.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define PATIENCE_SECONDS 30
#define EVENTS_MAX 256

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            printf("    line %d: %s\n", __LINE__, #condition);                                       \
            return 0;                                                                                \
        }                                                                                            \
    } while (0)

#define CHECK_INT(expression, wanted)                                                                \
    do {                                                                                             \
        long long got_ = (expression), wanted_ = (wanted);                                           \
        if (got_ != wanted_) {                                                                       \
            printf("    line %d: %s is %lld, not %lld\n", __LINE__, #expression, got_, wanted_);     \
            return 0;                                                                                \
        }                                                                                            \
    } while (0)

static const char *address;
static const char *program;
static char **server_command;
static pid_t server_pid;

/* ---- one client: its handle, its connection states and the watch events it was given, in order ---- */

struct client {
    zhandle_t *handle;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int connects; /* how often the session was (re)connected */
    int disconnects;
    int state;
    int event_count;
    struct {
        int type;
        char path[128];
    } events[EVENTS_MAX];
    int completions; /* counted by the asynchronous calls below */
    int last_rc;
};

static void watcher(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct client *client = context;
    (void)handle;
    pthread_mutex_lock(&client->lock);
    if (type == ZOO_SESSION_EVENT) {
        client->state = state;
        if (state == ZOO_CONNECTED_STATE) client->connects++;
        if (state == ZOO_CONNECTING_STATE) client->disconnects++;
    } else if (client->event_count < EVENTS_MAX) {
        client->events[client->event_count].type = type;
        snprintf(client->events[client->event_count].path, sizeof client->events[0].path, "%s", path);
        client->event_count++;
    }
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

/* Waits, with patience and without a timed assertion, until a counter of the client reaches `wanted`. */
static int reaches(struct client *client, const int *counter, int wanted) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_SECONDS;
    pthread_mutex_lock(&client->lock);
    int waited = 0;
    while (*counter < wanted && waited == 0) waited = pthread_cond_timedwait(&client->changed, &client->lock, &deadline);
    int reached = *counter >= wanted;
    pthread_mutex_unlock(&client->lock);
    return reached;
}

static int becomes(struct client *client, int state) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_SECONDS;
    pthread_mutex_lock(&client->lock);
    int waited = 0;
    while (client->state != state && waited == 0)
        waited = pthread_cond_timedwait(&client->changed, &client->lock, &deadline);
    int same = client->state == state;
    pthread_mutex_unlock(&client->lock);
    return same;
}

static int saw(struct client *client, int nth, int type, const char *path) {
    if (!reaches(client, &client->event_count, nth + 1)) return 0;
    pthread_mutex_lock(&client->lock);
    int same = client->events[nth].type == type && strcmp(client->events[nth].path, path) == 0;
    if (!same) printf("    event %d is type %d at %s\n", nth, client->events[nth].type, client->events[nth].path);
    pthread_mutex_unlock(&client->lock);
    return same;
}

static int connect_as(struct client *client, int timeout_ms, const clientid_t *id) {
    memset(client, 0, sizeof *client);
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->changed, NULL);
    client->handle = zookeeper_init(address, watcher, timeout_ms, id, client, 0);
    return client->handle != NULL;
}

static int connected(struct client *client, int timeout_ms) {
    return connect_as(client, timeout_ms, NULL) && becomes(client, ZOO_CONNECTED_STATE);
}

static int create(struct client *client, const char *path, const char *data, int mode) {
    return zoo_create(client->handle, path, data, data ? (int)strlen(data) : -1, &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);
}

static int holds(struct client *client, const char *path, const char *data) {
    char buffer[256];
    int length = sizeof buffer;
    int rc = zoo_get(client->handle, path, 0, buffer, &length, NULL);
    return rc == ZOK && length == (int)strlen(data) && memcmp(buffer, data, (size_t)length) == 0;
}

static void count_void(int rc, const void *context) {
    struct client *client = (struct client *)context;
    pthread_mutex_lock(&client->lock);
    client->completions++;
    client->last_rc = rc;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

static void count_string(int rc, const char *value, const void *context) {
    (void)value;
    count_void(rc, context);
}

static void count_stat(int rc, const struct Stat *stat, const void *context) {
    (void)stat;
    count_void(rc, context);
}

static int add_auth(struct client *client, const char *scheme, const char *credential) {
    int before = client->completions;
    if (zoo_add_auth(client->handle, scheme, credential, (int)strlen(credential), count_void, client) != ZOK) return -1;
    if (!reaches(client, &client->completions, before + 1)) return -1;
    return client->last_rc;
}

/* ---- the server ---- */

static pid_t spawn(char **command) {
    pid_t pid = fork();
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is for the results alone */
        execvp(command[0], command);
        _exit(127);
    }
    return pid;
}

static void start_server(void) { server_pid = spawn(server_command); }

static void kill_server(void) {
    kill(server_pid, SIGKILL);
    waitpid(server_pid, NULL, 0);
}

/*
 * A second process, because a session can only fall silent when its whole client does: it arms a data watch on PATH, says so by creating
 * PATH-armed (ephemeral, so its end is visible too), and exits 0 when the watch fires, 3 when its session has expired.
 */
static int sleeper(const char *path) {
    static struct client client;
    char armed[128];
    if (!connected(&client, 6000)) return 1;
    if (zoo_wget(client.handle, path, watcher, &client, NULL, &(int){0}, NULL) != ZOK) return 1;
    snprintf(armed, sizeof armed, "%s-armed", path);
    if (create(&client, armed, NULL, ZOO_EPHEMERAL) != ZOK) return 1;
    for (;;) {
        pthread_mutex_lock(&client.lock);
        while (client.event_count == 0 && client.state != ZOO_EXPIRED_SESSION_STATE)
            pthread_cond_wait(&client.changed, &client.lock);
        int fired = client.event_count > 0;
        int right = fired && client.events[0].type == ZOO_CHANGED_EVENT && strcmp(client.events[0].path, path) == 0;
        pthread_mutex_unlock(&client.lock);
        if (!fired) return 3;
        return right ? 0 : 2;
    }
}

static pid_t start_sleeper(const char *path) {
    char *command[] = {(char *)program, "--sleeper", (char *)address, (char *)path, NULL};
    return spawn(command);
}

static int exit_code_of(pid_t pid) {
    int status;
    for (int tenths = 0; tenths < PATIENCE_SECONDS * 10; tenths++) {
        if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(100 * 1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -2;
}

static int exists_within_patience(struct client *client, const char *path, int wanted_rc) {
    for (int tenths = 0; tenths < PATIENCE_SECONDS * 10; tenths++) {
        if (zoo_exists(client->handle, path, 0, NULL) == wanted_rc) return 1;
        usleep(100 * 1000);
    }
    return 0;
}

/* ---- the tests: names are claims ---- */

static int session_timeout_is_negotiated_between_two_and_twenty_ticks(void) {
    struct client low, high, middle;
    CHECK(connected(&low, 1500) && connected(&high, 1000000) && connected(&middle, 7000));
    CHECK_INT(zoo_recv_timeout(low.handle), 2000);
    CHECK_INT(zoo_recv_timeout(high.handle), 20000);
    CHECK_INT(zoo_recv_timeout(middle.handle), 7000);
    CHECK(zoo_client_id(low.handle)->client_id != 0);
    CHECK(zoo_client_id(low.handle)->client_id != zoo_client_id(high.handle)->client_id);
    CHECK(memcmp(zoo_client_id(low.handle)->passwd, zoo_client_id(high.handle)->passwd, 16) != 0);
    CHECK_INT(zookeeper_close(low.handle), ZOK);
    CHECK_INT(zookeeper_close(high.handle), ZOK);
    CHECK_INT(zookeeper_close(middle.handle), ZOK);
    return 1;
}

static int znode_is_created_read_changed_and_deleted_by_version(void) {
    struct client c;
    struct Stat stat;
    char buffer[64];
    int length = sizeof buffer;
    CHECK(connected(&c, 10000));
    CHECK_INT(create(&c, "/c-basic", "one", 0), ZOK);
    CHECK_INT(create(&c, "/c-basic", "one", 0), ZNODEEXISTS);
    CHECK_INT(create(&c, "/c-absent/x", "one", 0), ZNONODE);
    CHECK_INT(zoo_get(c.handle, "/c-basic", 0, buffer, &length, &stat), ZOK);
    CHECK(length == 3 && memcmp(buffer, "one", 3) == 0);
    CHECK(stat.czxid > 0 && stat.czxid == stat.mzxid && stat.czxid == stat.pzxid && stat.ctime == stat.mtime);
    CHECK(stat.version == 0 && stat.cversion == 0 && stat.aversion == 0 && stat.ephemeralOwner == 0);
    CHECK(stat.dataLength == 3 && stat.numChildren == 0);
    int64_t czxid = stat.czxid;
    CHECK_INT(zoo_set2(c.handle, "/c-basic", "changed", 7, 0, &stat), ZOK);
    CHECK(stat.version == 1 && stat.czxid == czxid && stat.mzxid > czxid && stat.pzxid == czxid && stat.dataLength == 7);
    CHECK_INT(zoo_set(c.handle, "/c-basic", "x", 1, 0), ZBADVERSION);
    CHECK_INT(create(&c, "/c-basic/child", "x", 0), ZOK);
    CHECK_INT(zoo_exists(c.handle, "/c-basic", 0, &stat), ZOK);
    CHECK(stat.numChildren == 1 && stat.cversion == 1 && stat.pzxid > stat.mzxid);
    CHECK_INT(zoo_delete(c.handle, "/c-basic", -1), ZNOTEMPTY);
    CHECK_INT(zoo_delete(c.handle, "/c-basic/child", -1), ZOK);
    CHECK_INT(zoo_delete(c.handle, "/c-basic", 0), ZBADVERSION);
    CHECK_INT(zoo_delete(c.handle, "/c-basic", 1), ZOK);
    CHECK_INT(zoo_exists(c.handle, "/c-basic", 0, &stat), ZNONODE);
    CHECK_INT(zoo_set(c.handle, "/c-basic", "x", 1, -1), ZNONODE);
    zookeeper_close(c.handle);
    return 1;
}

static int null_data_is_not_empty_data(void) {
    struct client c;
    char buffer[8];
    int length = sizeof buffer;
    CHECK(connected(&c, 10000));
    CHECK_INT(create(&c, "/c-null", NULL, 0), ZOK);
    CHECK_INT(create(&c, "/c-empty", "", 0), ZOK);
    CHECK_INT(zoo_get(c.handle, "/c-null", 0, buffer, &length, NULL), ZOK);
    CHECK_INT(length, -1);
    length = sizeof buffer;
    CHECK_INT(zoo_get(c.handle, "/c-empty", 0, buffer, &length, NULL), ZOK);
    CHECK_INT(length, 0);
    zookeeper_close(c.handle);
    return 1;
}

static int create_modes_are_those_of_zookeeper(void) {
    struct client c;
    struct Stat stat;
    char path[64];
    CHECK(connected(&c, 10000));
    CHECK_INT(create(&c, "/c-modes", NULL, 0), ZOK);
    CHECK_INT(zoo_create(c.handle, "/c-modes/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, path, sizeof path), ZOK);
    CHECK(strcmp(path, "/c-modes/s-0000000000") == 0);
    CHECK_INT(zoo_create2(c.handle, "/c-modes/e-", "xy", 2, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, path,
                          sizeof path, &stat), ZOK);
    CHECK(strcmp(path, "/c-modes/e-0000000001") == 0);
    CHECK(stat.dataLength == 2 && stat.version == 0 && stat.ephemeralOwner == zoo_client_id(c.handle)->client_id);
    CHECK_INT(create(&c, "/c-modes/e-0000000001/x", NULL, 0), ZNOCHILDRENFOREPHEMERALS);
    CHECK_INT(zoo_create2(c.handle, "/c-modes/container", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, path, sizeof path,
                          &stat), ZOK);
    CHECK_INT(stat.ephemeralOwner, 0);
    CHECK_INT(zoo_create_ttl(c.handle, "/c-modes/ttl", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL,
                             3600000, path, sizeof path), ZOK);
    CHECK(strcmp(path, "/c-modes/ttl") == 0);
    struct String_vector children;
    CHECK_INT(zoo_get_children2(c.handle, "/c-modes", 0, &children, &stat), ZOK);
    CHECK(children.count == 4 && stat.numChildren == 4 && stat.cversion == 4);
    deallocate_String_vector(&children);
    zookeeper_close(c.handle);
    return 1;
}

static int each_watch_fires_once_and_at_its_own_change(void) {
    struct client c;
    struct String_vector children;
    struct Stat stat;
    CHECK(connected(&c, 10000));
    CHECK_INT(zoo_wexists(c.handle, "/c-watch", watcher, &c, &stat), ZNONODE);
    CHECK_INT(create(&c, "/c-watch", NULL, 0), ZOK);
    CHECK(saw(&c, 0, ZOO_CREATED_EVENT, "/c-watch"));
    CHECK_INT(zoo_wget(c.handle, "/c-watch", watcher, &c, NULL, &(int){0}, &stat), ZOK);
    CHECK_INT(zoo_set(c.handle, "/c-watch", "1", 1, -1), ZOK);
    CHECK_INT(zoo_set(c.handle, "/c-watch", "2", 1, -1), ZOK);
    CHECK(saw(&c, 1, ZOO_CHANGED_EVENT, "/c-watch"));
    CHECK_INT(zoo_wget_children2(c.handle, "/c-watch", watcher, &c, &children, &stat), ZOK);
    deallocate_String_vector(&children);
    CHECK_INT(create(&c, "/c-watch/child", NULL, 0), ZOK);
    CHECK(saw(&c, 2, ZOO_CHILD_EVENT, "/c-watch"));
    CHECK_INT(zoo_wget(c.handle, "/c-watch/child", watcher, &c, NULL, &(int){0}, &stat), ZOK);
    CHECK_INT(zoo_delete(c.handle, "/c-watch/child", -1), ZOK);
    CHECK(saw(&c, 3, ZOO_DELETED_EVENT, "/c-watch/child"));
    CHECK_INT(zoo_wget(c.handle, "/c-watch", watcher, &c, NULL, &(int){0}, &stat), ZOK);
    CHECK_INT(zoo_remove_watches(c.handle, "/c-watch", ZWATCHTYPE_DATA, watcher, &c, 0), ZOK);
    CHECK_INT(zoo_remove_watches(c.handle, "/c-watch", ZWATCHTYPE_DATA, watcher, &c, 0), ZNOWATCHER);
    CHECK_INT(zoo_set(c.handle, "/c-watch", "unseen", 6, -1), ZOK);
    CHECK_INT(zoo_wexists(c.handle, "/c-watch", watcher, &c, &stat), ZOK);
    CHECK_INT(zoo_delete(c.handle, "/c-watch", -1), ZOK);
    CHECK(saw(&c, 4, ZOO_DELETED_EVENT, "/c-watch"));
    CHECK_INT(c.event_count, 5);
    zookeeper_close(c.handle);
    return 1;
}

static int multi_happens_wholly_or_not_at_all(void) {
    struct client c;
    struct Stat stat;
    char path[64], second[64];
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    CHECK(connected(&c, 10000));
    CHECK_INT(create(&c, "/c-multi", "0", 0), ZOK);
    zoo_check_op_init(&ops[0], "/c-multi", 0);
    zoo_create_op_init(&ops[1], "/c-multi/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, path, sizeof path);
    zoo_create_op_init(&ops[2], "/c-multi/s-0000000000/below", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, second, sizeof second);
    zoo_set_op_init(&ops[3], "/c-multi", "1", 1, 0, &stat);
    CHECK_INT(zoo_multi(c.handle, 4, ops, results), ZOK);
    CHECK(results[0].err == ZOK && results[1].err == ZOK && results[2].err == ZOK && results[3].err == ZOK);
    CHECK(strcmp(path, "/c-multi/s-0000000000") == 0);
    CHECK_INT(stat.version, 1);
    CHECK(holds(&c, "/c-multi", "1"));
    zoo_delete_op_init(&ops[0], "/c-multi/s-0000000000/below", -1);
    zoo_check_op_init(&ops[1], "/c-multi", 0);
    zoo_set_op_init(&ops[2], "/c-multi", "2", 1, -1, &stat);
    CHECK_INT(zoo_multi(c.handle, 3, ops, results), ZBADVERSION);
    CHECK_INT(results[0].err, ZOK);
    CHECK_INT(results[1].err, ZBADVERSION);
    CHECK_INT(results[2].err, ZRUNTIMEINCONSISTENCY);
    CHECK_INT(zoo_exists(c.handle, "/c-multi/s-0000000000/below", 0, NULL), ZOK);
    CHECK(holds(&c, "/c-multi", "1"));
    zookeeper_close(c.handle);
    return 1;
}

static int pipelined_requests_are_all_answered_and_sync_passes_them(void) {
    struct client c;
    struct Stat stat;
    CHECK(connected(&c, 10000));
    CHECK_INT(create(&c, "/c-pipe", "0", 0), ZOK);
    for (int i = 0; i < 1000; i++) CHECK_INT(zoo_aset(c.handle, "/c-pipe", "x", 1, i, count_stat, &c), ZOK);
    CHECK_INT(zoo_async(c.handle, "/c-pipe", count_string, &c), ZOK);
    CHECK(reaches(&c, &c.completions, 1001));
    CHECK_INT(c.last_rc, ZOK);
    /* Each set named the version that its predecessor left: in any other order one of them would have failed. */
    CHECK_INT(zoo_exists(c.handle, "/c-pipe", 0, &stat), ZOK);
    CHECK_INT(stat.version, 1000);
    zookeeper_close(c.handle);
    return 1;
}

static int large_data_and_many_children_come_back_whole(void) {
    enum { LARGE = 1000 * 1000, MANY = 3000 };
    struct client c;
    static char sent[LARGE], received[LARGE + 1];
    int length = sizeof received;
    char path[64];
    struct String_vector children;
    CHECK(connected(&c, 10000));
    for (int i = 0; i < LARGE; i++) sent[i] = (char)(i * 31 + i / 251);
    CHECK_INT(zoo_create(c.handle, "/c-large", sent, LARGE, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    CHECK_INT(zoo_get(c.handle, "/c-large", 0, received, &length, NULL), ZOK);
    CHECK(length == LARGE && memcmp(sent, received, LARGE) == 0);
    CHECK_INT(create(&c, "/c-many", NULL, 0), ZOK);
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "/c-many/a-child-with-a-longer-name-%05d", i);
        CHECK_INT(zoo_acreate(c.handle, path, "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, count_string, &c), ZOK);
    }
    CHECK(reaches(&c, &c.completions, MANY));
    CHECK_INT(zoo_get_children(c.handle, "/c-many", 0, &children), ZOK);
    CHECK_INT(children.count, MANY);
    deallocate_String_vector(&children);
    zookeeper_close(c.handle);
    return 1;
}

static int digest_identity_opens_what_is_closed_to_others(void) {
    struct client owner, stranger;
    struct Stat stat;
    struct ACL_vector acl;
    CHECK(connected(&owner, 10000) && connected(&stranger, 10000));
    CHECK_INT(zoo_create(owner.handle, "/c-acl", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZINVALIDACL);
    CHECK_INT(add_auth(&owner, "digest", "alice:wonderland"), ZOK);
    CHECK_INT(zoo_create(owner.handle, "/c-acl", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZOK);
    CHECK_INT(zoo_get_acl(owner.handle, "/c-acl", &acl, &stat), ZOK);
    CHECK(acl.count == 1 && acl.data[0].perms == ZOO_PERM_ALL && strcmp(acl.data[0].id.scheme, "digest") == 0);
    CHECK(strcmp(acl.data[0].id.id, "alice:Ixk9jMTa8bTnIN8COfaG3+RzQ1U=") == 0);
    deallocate_ACL_vector(&acl);
    CHECK_INT(zoo_get(stranger.handle, "/c-acl", 0, NULL, &(int){0}, NULL), ZNOAUTH);
    CHECK_INT(zoo_set(stranger.handle, "/c-acl", "y", 1, -1), ZNOAUTH);
    CHECK_INT(create(&stranger, "/c-acl/x", NULL, 0), ZNOAUTH);
    CHECK_INT(zoo_set_acl(stranger.handle, "/c-acl", -1, &ZOO_OPEN_ACL_UNSAFE), ZNOAUTH);
    CHECK_INT(add_auth(&stranger, "digest", "alice:wrong"), ZOK);
    CHECK_INT(zoo_set(stranger.handle, "/c-acl", "y", 1, -1), ZNOAUTH);
    CHECK_INT(add_auth(&stranger, "digest", "alice:wonderland"), ZOK);
    CHECK_INT(zoo_set(stranger.handle, "/c-acl", "y", 1, -1), ZOK);
    CHECK_INT(zoo_set_acl(owner.handle, "/c-acl", 0, &ZOO_READ_ACL_UNSAFE), ZOK);
    CHECK_INT(zoo_exists(owner.handle, "/c-acl", 0, &stat), ZOK);
    CHECK_INT(stat.aversion, 1);
    CHECK_INT(zoo_set(owner.handle, "/c-acl", "z", 1, -1), ZNOAUTH);
    zookeeper_close(owner.handle);
    zookeeper_close(stranger.handle);
    return 1;
}

static int unknown_auth_scheme_ends_the_handle(void) {
    struct client c;
    CHECK(connected(&c, 10000));
    CHECK_INT(add_auth(&c, "nosuch", "x"), ZAUTHFAILED);
    CHECK(becomes(&c, ZOO_AUTH_FAILED_STATE));
    zookeeper_close(c.handle);
    return 1;
}

static int closing_a_handle_ends_its_session_and_its_ephemerals(void) {
    struct client closing, observer, revenant;
    CHECK(connected(&closing, 20000) && connected(&observer, 20000));
    CHECK_INT(create(&closing, "/c-closing", NULL, ZOO_EPHEMERAL), ZOK);
    CHECK_INT(zoo_wexists(observer.handle, "/c-closing", watcher, &observer, NULL), ZOK);
    clientid_t id = *zoo_client_id(closing.handle);
    CHECK_INT(zookeeper_close(closing.handle), ZOK);
    CHECK(saw(&observer, 0, ZOO_DELETED_EVENT, "/c-closing"));
    CHECK(connect_as(&revenant, 20000, &id) && becomes(&revenant, ZOO_EXPIRED_SESSION_STATE));
    zookeeper_close(revenant.handle);
    zookeeper_close(observer.handle);
    return 1;
}

static int wrong_password_does_not_open_a_session_nor_harm_it(void) {
    struct client owner, thief;
    CHECK(connected(&owner, 20000));
    CHECK_INT(create(&owner, "/c-theft", NULL, ZOO_EPHEMERAL), ZOK);
    clientid_t id = *zoo_client_id(owner.handle);
    id.passwd[3] = (char)(id.passwd[3] ^ 0x5a);
    CHECK(connect_as(&thief, 20000, &id) && becomes(&thief, ZOO_EXPIRED_SESSION_STATE));
    CHECK(exists_within_patience(&owner, "/c-theft", ZOK));
    CHECK_INT(zoo_client_id(owner.handle)->client_id, id.client_id);
    zookeeper_close(thief.handle);
    zookeeper_close(owner.handle);
    return 1;
}

static int session_survives_a_killed_server_with_ephemerals_and_watches(void) {
    struct client c, other;
    struct Stat stat;
    struct String_vector children;
    CHECK(connected(&c, 20000));
    int64_t id = zoo_client_id(c.handle)->client_id;
    CHECK_INT(create(&c, "/c-crash", "kept", 0), ZOK);
    CHECK_INT(create(&c, "/c-crash/ephemeral", "kept too", ZOO_EPHEMERAL), ZOK);
    CHECK_INT(zoo_wget(c.handle, "/c-crash", watcher, &c, NULL, &(int){0}, NULL), ZOK);
    CHECK_INT(zoo_wexists(c.handle, "/c-crash/later", watcher, &c, NULL), ZNONODE);
    CHECK_INT(zoo_wget_children2(c.handle, "/c-crash", watcher, &c, &children, &stat), ZOK);
    deallocate_String_vector(&children);
    int connects = c.connects;
    kill_server();
    start_server();
    CHECK(reaches(&c, &c.connects, connects + 1));
    CHECK_INT(zoo_client_id(c.handle)->client_id, id);
    CHECK(holds(&c, "/c-crash", "kept") && holds(&c, "/c-crash/ephemeral", "kept too"));
    CHECK_INT(zoo_exists(c.handle, "/c-crash/ephemeral", 0, &stat), ZOK);
    CHECK_INT(stat.ephemeralOwner, id);
    CHECK_INT(c.event_count, 0);
    CHECK(connected(&other, 20000));
    CHECK_INT(zoo_set(other.handle, "/c-crash", "new", 3, 0), ZOK);
    CHECK(saw(&c, 0, ZOO_CHANGED_EVENT, "/c-crash"));
    CHECK_INT(create(&other, "/c-crash/later", NULL, 0), ZOK);
    CHECK(reaches(&c, &c.event_count, 3));
    int created = c.events[1].type == ZOO_CREATED_EVENT ? 1 : 2;
    CHECK(saw(&c, created, ZOO_CREATED_EVENT, "/c-crash/later") && saw(&c, 3 - created, ZOO_CHILD_EVENT, "/c-crash"));
    zookeeper_close(c.handle);
    CHECK(exists_within_patience(&other, "/c-crash/ephemeral", ZNONODE));
    zookeeper_close(other.handle);
    return 1;
}

static int change_missed_while_disconnected_is_delivered_by_set_watches(void) {
    struct client c;
    CHECK(connected(&c, 20000));
    CHECK_INT(create(&c, "/c-missed", "before", 0), ZOK);
    pid_t sleeping = start_sleeper("/c-missed");
    CHECK(exists_within_patience(&c, "/c-missed-armed", ZOK));
    int connects = c.connects;
    kill(sleeping, SIGSTOP);
    kill_server();
    start_server();
    CHECK(reaches(&c, &c.connects, connects + 1));
    CHECK_INT(zoo_set(c.handle, "/c-missed", "after", 5, -1), ZOK);
    kill(sleeping, SIGCONT);
    CHECK_INT(exit_code_of(sleeping), 0);
    zookeeper_close(c.handle);
    return 1;
}

static int silent_session_expires_and_is_told_so(void) {
    struct client c;
    CHECK(connected(&c, 20000));
    CHECK_INT(create(&c, "/c-silent", NULL, 0), ZOK);
    pid_t sleeping = start_sleeper("/c-silent");
    CHECK(exists_within_patience(&c, "/c-silent-armed", ZOK));
    CHECK_INT(zoo_wexists(c.handle, "/c-silent-armed", watcher, &c, NULL), ZOK);
    kill(sleeping, SIGSTOP);
    CHECK(saw(&c, 0, ZOO_DELETED_EVENT, "/c-silent-armed"));
    kill(sleeping, SIGCONT);
    CHECK_INT(exit_code_of(sleeping), 3);
    zookeeper_close(c.handle);
    return 1;
}

static int everything_acknowledged_is_there_after_repeated_kills(void) {
    struct client c;
    struct Stat stat;
    CHECK(connected(&c, 20000));
    CHECK_INT(create(&c, "/c-kills", "0", 0), ZOK);
    int acknowledged = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 50; i++, acknowledged++) CHECK_INT(zoo_set(c.handle, "/c-kills", "x", 1, acknowledged), ZOK);
        int connects = c.connects;
        kill_server();
        start_server();
        CHECK(reaches(&c, &c.connects, connects + 1));
        CHECK_INT(zoo_exists(c.handle, "/c-kills", 0, &stat), ZOK);
        CHECK_INT(stat.version, acknowledged);
    }
    zookeeper_close(c.handle);
    return 1;
}

#define TEST(name) {#name, name}
static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
    TEST(session_timeout_is_negotiated_between_two_and_twenty_ticks),
    TEST(znode_is_created_read_changed_and_deleted_by_version),
    TEST(null_data_is_not_empty_data),
    TEST(create_modes_are_those_of_zookeeper),
    TEST(each_watch_fires_once_and_at_its_own_change),
    TEST(multi_happens_wholly_or_not_at_all),
    TEST(pipelined_requests_are_all_answered_and_sync_passes_them),
    TEST(large_data_and_many_children_come_back_whole),
    TEST(digest_identity_opens_what_is_closed_to_others),
    TEST(unknown_auth_scheme_ends_the_handle),
    TEST(closing_a_handle_ends_its_session_and_its_ephemerals),
    TEST(wrong_password_does_not_open_a_session_nor_harm_it),
    TEST(session_survives_a_killed_server_with_ephemerals_and_watches),
    TEST(change_missed_while_disconnected_is_delivered_by_set_watches),
    TEST(silent_session_expires_and_is_told_so),
    TEST(everything_acknowledged_is_there_after_repeated_kills),
};

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    if (argc < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    zoo_set_debug_level(getenv("ZOO_DEBUG") ? ZOO_LOG_LEVEL_DEBUG : ZOO_LOG_LEVEL_ERROR);
    program = argv[0];
    if (strcmp(argv[1], "--sleeper") == 0) {
        address = argv[2];
        return sleeper(argv[3]);
    }
    address = argv[1];
    server_command = argv + 2;
    start_server();
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        int ok = tests[i].run();
        printf("%s %s\n", ok ? "ok    " : "FAILED", tests[i].name);
        if (ok) passed++;
        else failed++;
    }
    kill_server();
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
