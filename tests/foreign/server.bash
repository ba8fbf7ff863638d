# Sourced by the suites: starts a server command on a fresh data directory and takes it down again.
# The caller sets SERVER (the command; the path of a zoo.cfg is appended) and PORT.

WORK=$(mktemp -d)
SERVER_PID=
trap 'stop_server; rm -rf "$WORK"' EXIT

# One server in the standalone form of zoo.cfg, keys as ZooKeeper's own documentation has them.
write_config() {
    mkdir -p "$WORK/data"
    cat > "$WORK/zoo.cfg" <<CFG
tickTime=1000
dataDir=$WORK/data
clientPort=$PORT
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
reconfigEnabled=false
CFG
}

start_server() {
    write_config
    restart_server
}

# Starts the server again, with the data that it left.
restart_server() {
    # shellcheck disable=SC2086 # a command line, split on purpose
    $SERVER "$WORK/zoo.cfg" > "$WORK/server.log" 2>&1 &
    SERVER_PID=$!
    local deadline=$((SECONDS + 30))
    until [ "$(four_letters ruok)" = imok ]; do
        if [ $SECONDS -ge $deadline ] || ! kill -0 "$SERVER_PID" 2>/dev/null; then
            echo "the server did not start; its output:" >&2
            tail -n 20 "$WORK/server.log" >&2
            exit 1
        fi
        sleep 0.1
    done
}

stop_server() {
    if [ -n "$SERVER_PID" ]; then
        kill "$SERVER_PID" 2>/dev/null || true
        wait "$SERVER_PID" 2>/dev/null || true
        SERVER_PID=
    fi
}

# What the server answers to a four-letter word; empty while nothing listens.
four_letters() {
    {
        exec 3<> "/dev/tcp/127.0.0.1/$PORT" && printf '%s' "$1" >&3 && timeout 5 cat <&3
        exec 3>&-
    } 2>/dev/null || true
}
