# Writes to stdout a tar of the files in a run's folder that exists only on this host: remote_pack.sh RUN_DIR

cd "$1" || exit
set -- logs
[ ! -e metrics.jsonl ] || set -- "$@" metrics.jsonl
exec tar cf - "$@" 2>/dev/null
