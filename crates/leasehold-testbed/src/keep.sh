# Runs one server in its folder for as long as standard input stays open. Commands are lines on standard input; each
# is answered by a line. However the other end closes, the server ends with all its children, and the folder is
# removed.
#
#   bash keep.sh FOLDER STOP-SIGNAL COMMAND...

folder=$1 stop_signal=$2 server=
shift 2
# Suppresses bash's own messages about killed processes.
exec 3>&2 2>/dev/null

start() {
    setsid -- "$@" </dev/null >>"$folder/log" 2>&1 3>&- &
    server=$!
}

# Prints these processes and all their descendants: servers put children into sessions of their own.
family() {
    local pid
    for pid; do
        echo "$pid"
        family $(cat "/proc/$pid/task/"*/children 2>/dev/null)
    done
}

# Excludes processes that merely wait to be reaped.
is_alive() { grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

signal() {
    local all
    all=$(family "$server")
    kill "-$1" -- "-$server" $all 2>/dev/null
}

crash() {
    [ "$server" ] || return
    local pid all
    kill -STOP "$server" 2>/dev/null
    all=$(family "$server")
    kill -KILL -- "-$server" $all 2>/dev/null
    for pid in $all; do
        while is_alive "$pid"; do sleep 0.01; done
    done
    wait "$server" 2>/dev/null
    server=
}

stop() {
    [ "$server" ] || return
    local tries
    kill "-$stop_signal" "$server" 2>/dev/null
    for tries in $(seq 1000); do
        is_alive "$server" || break
        sleep 0.01
    done
    crash
}

while read -r command; do
    case $command in
    start) start "$@" ;;
    crash) crash ;;
    stop) stop ;;
    pause) signal STOP ;;
    resume) signal CONT ;;
    esac
    if [ "$server" ] && is_alive "$server"; then echo up; else echo down; fi
done
# The server ended by itself: only here can its log still be printed.
if [ "$server" ] && ! is_alive "$server"; then
    echo "had ended by itself: $1; the end of its log:"
    tail -c 4096 "$folder/log"
fi >&3
crash
rm -rf -- "$folder"
