#!/usr/bin/env bash
# Works on the jobs of a queue, one after the other, until SIGTERM. Needs redis-cli 7, bash 4. Payloads and results are text
# of 100 kB at most here: a shell knows no NUL bytes, and hands over no longer words.
queue=${QUEUE:-mail} lease=${LEASE:-30000}                                  # ms
me=$(uname -n)-$$-$RANDOM$RANDOM                                            # no other has this name, ever
beat=$(printf '%d.%03d' $((lease / 3000)) $((lease / 3 % 1000)))            # s
files=$(mktemp -d) stop=''
set -m                                                                      # work can be killed with all that it started
trap 'stop=1' TERM

# Yours; this one sleeps so many ms. The payload is its input, what it prints the result. An exit code other than 0 fails
# the job. It is killed once nobody wants the result any more.
work() {
    read -r ms
    [[ $ms =~ ^[0-9]+$ ]] || { echo "not a number: $ms"; return 1; }
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    echo "slept $ms ms"
}

ask() { timeout 10 redis-cli -e -h "${REDIS_HOST:-localhost}" -p "${REDIS_PORT:-6379}" "$@" 2>&1; } # longer than BLOCK

# Asks until there is an answer: all that a worker says may be said twice.
call() {
    until answer=$(ask "$@"); do
        [[ $answer =~ ^[A-Z]{2,}\  && $answer != LOADING* ]] && { echo "$answer" >&2; return 1; } # STALE: it is another's job
        [ -z "$stop" ] || return 1
        sleep 1
    done
}

# Reads a pipe that nothing is written to: that takes a beat, unless the worker has closed it, or is no more.
heartbeat() {
    while read -rt "$beat"; [ $? -gt 128 ]; do
        case $(ask RQ.EXTEND "$queue" "$me" LEASE "$lease" "$1" "$2") in
            lost | cancel) touch "$files/gone"; kill -- "-$3"; return ;;
        esac
    done
}

run() {
    [ -z "$stop" ] || { call RQ.RELEASE "$queue" "$1" "$2"; return; }       # while it waited for a job
    rm -f "$files/gone"
    work <"$files/payload" >"$files/result" & pid=$!
    exec 3> >(heartbeat "$1" "$2" $pid)
    until wait $pid; status=$?; ! kill -0 $pid; do :; done 2>/dev/null      # a signal ends the wait, not the work
    exec 3>&-
    if [ -e "$files/gone" ]; then call RQ.RELEASE "$queue" "$1" "$2"
    elif [ $status = 0 ]; then call RQ.ACK "$queue" "$1" "$2" RESULT "$(<"$files/result")"
    else call RQ.FAIL "$queue" "$1" "$2" ERROR "$(<"$files/result")"; fi
}

while [ -z "$stop" ]; do
    call RQ.CLAIM "$queue" "$me" BLOCK 5000 LEASE "$lease" || { sleep 1; continue; }
    [ -n "$answer" ] || continue
    { IFS= read -r job; read -r token; sed '$d' >"$files/payload"; } <<<"$answer" # last: delivery
    run "$job" "$token"
done
rm -rf "$files"
