# What processes left on a host in a run's folder that the launcher does not see, as a tar: remote_pack.sh RUN_DIR

cd "$1" || exit
set -- logs
[ ! -e metrics.jsonl ] || set -- "$@" metrics.jsonl
exec tar cf - "$@" 2>/dev/null
