# Removes the folder of a run that remote_check.sh created on this host: remote_clear.sh RUN_DIR
# Keeps a folder with logs/launch.log: it is the launcher's own, which a network file system may have shown too late.

[ -e "$1/logs/launch.log" ] || rm -rf "$1"
