# Checks a host before tools/launch starts anything there, and prints lines of the form "tarn-launch: WORD TEXT":
# remote_check.sh RUN_DIR TOKEN PROGRAMS FOLDERS FILES, where the last three are lists, an item a line.
# Creates RUN_DIR, or uses one that remote_clear.sh has left, unless this host shares the launcher's folder: its file .launch-token then contains TOKEN.

run=$1 token=$2 programs=$3 folders=$4 files=$5
set -f
IFS='
'
say() { printf 'tarn-launch: %s\n' "$*"; }

has_programs() {
  for program in $programs; do
    [ -x "$1/$program" ] || return 1
  done
}

loads() {
  for program in $programs; do
    "$1/$program" --help </dev/null >/dev/null 2>&1
    case $? in 126 | 127) return 1 ;; esac
  done
}

check_programs() {
  for folder in $folders; do
    has_programs "$folder" || continue
    folder=$(cd "$folder" && pwd) || continue
    fallback=$folder/../lib/fallback
    if loads "$folder"; then
      say "programs $folder"
    elif [ -d "$fallback" ] && (export LD_LIBRARY_PATH="$fallback" && loads "$folder"); then
      say "programs $folder"
      say "libraries $fallback"
    else
      say "do-not-load $folder"
    fi
    return
  done
}

check_run_dir() {
  if [ "$(cat "$run/.launch-token" 2>/dev/null)" = "$token" ]; then
    say shared
  elif [ -e "$run/.tarn-left" ] && mkdir "$run/logs" 2>/dev/null; then
    say "made $run"
  elif [ -e "$run" ]; then
    say "occupied $run"
  elif why=$(mkdir -p "${run%/*}" 2>&1 && mkdir "$run" "$run/logs" 2>&1); then
    say "made $run"
  else
    say "cannot-make $why"
  fi
}

for tool in setsid tar; do
  command -v $tool >/dev/null || say "no-tool $tool"
done
check_programs
check_run_dir
for file in $files; do
  [ -r "$file" ] || say "absent $file"
done
say end
