# Runs one program of a fleet on a host of tools/launch --hosts: remote_run.sh LIBRARIES PROGRAM ARGUMENT...
# The launcher holds the other end of stdin. First come the lines of the key file and "end", then nothing for as long as
# the program may run. When stdin ends, because the launcher wants that, is dead or cut off, the program's group gets
# TERM, and KILL if it is there two seconds later; what the program leaves in it when it ends, too, after a second. It
# ends as the program does; 128 + n is a death by signal n.

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

# The program gets the keys through a pipe: they are on no disk, in no environment and no list of processes.
exec 3<&0
setsid "$@" 3<&- 2>&1 <<KEYS &
$keys
KEYS
program=$!

# To its group, or to the program alone as long as it has none.
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
# What it has left in its group would hold the connection.
tries=0
while [ $tries -lt 10 ] && kill -0 "-$program"; do
  sleep 0.1
  tries=$((tries + 1))
done
kill -0 "-$program" && stop
exit $code
