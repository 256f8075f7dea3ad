# Runs one program of a fleet on a host of tools/launch --hosts: remote_run.sh LIBRARIES PROGRAM ARGUMENT...
# The launcher has the other end of stdin. It sends the lines of the key file and "end", and then keeps stdin open as
# long as the program may run. When stdin ends, because the launcher has closed it, is dead or is cut off, the program's
# process group gets TERM, and KILL if it still exists two seconds later. When the program ends, processes that it has
# left in its group get the same after one second. Exits with the program's status; 128 + n: it died of signal n.

libraries=$1
shift
if [ -n "$libraries" ]; then
  LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
keys=
line=
while IFS= read -r line && [ "$line" != end ]; do
  keys="$keys$line
"
done
[ "$line" = end ] || exit 1

# The program gets the keys through a pipe: they are on no disk, in no environment and no list of processes. Some shells
# would write a here-document to a file.
exec 3<&0
printf '%s\n' "$keys" | setsid "$@" 3<&- 2>&1 &
program=$!

# Sends a signal to the program's group, or to the program alone until setsid has created the group.
signal() { kill "-$1" "-$program" || kill "-$1" "$program"; }
stop() {
  signal TERM
  tries=0
  while [ $tries -lt 20 ] && signal 0; do
    sleep 0.1
    tries=$((tries + 1))
  done
  signal KILL
}
exec 2>/dev/null
trap 'stop &' HUP INT TERM
trap : PIPE
echo "tarn-launch: process $program"
{
  while read -r line; do :; done
  stop
} <&3 >/dev/null &
watch=$!

wait "$program"
code=$?
while kill -0 "$program"; do # a signal of ours may end the wait
  wait "$program"
  code=$?
done
kill "$watch"
# Processes left in the group would keep the connection open.
tries=0
while [ $tries -lt 10 ] && kill -0 "-$program"; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -0 "-$program" && stop
exit $code
