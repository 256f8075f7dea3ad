# Removes the folder of a run that remote_check.sh created on this host: remote_clear.sh RUN_DIR
# Keeps a folder with logs/launch.log: it is the launcher's own, which a network file system may have shown too late.
# Keeps the other files than those of tarn, with status 3: programs of the user have saved them. .tarn-left lets
# remote_check.sh use the folder again, when the run continues.

[ -e "$1/logs/launch.log" ] && exit
cd "$1" || exit
rm -rf logs metrics.jsonl sockets tier gemm-algorithms .tarn-left
cd / || exit
rmdir "$1" 2>/dev/null && exit
: >"$1/.tarn-left"
exit 3
