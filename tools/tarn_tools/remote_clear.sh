# Removes the folder of a run that remote_check.sh created on this host: remote_clear.sh RUN_DIR
# Keeps a folder with logs/launch.log: it is the launcher's own, which a network file system may have shown too late.
# Keeps one with other files than those of tarn, with status 3: programs of the user have saved them.

[ -e "$1/logs/launch.log" ] && exit
cd "$1" || exit
for name in * .[!.]*; do
  case $name in
    logs | metrics.jsonl | sockets | tier | '*' | '.[!.]*') ;;
    *) exit 3 ;;
  esac
done
cd / && rm -rf "$1"
