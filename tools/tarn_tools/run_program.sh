# Sourced by tools/inspect and tools/checkpoint: run_program TOOL PROGRAM ARGUMENT... builds PROGRAM, except in a
# bundle, and replaces the shell by it. With --help among the arguments it builds nothing, and prints usage_text and, if
# PROGRAM exists, its own help. --bin-dir DIR, at any position, runs PROGRAM of that folder without building it.
run_program() {
  local tool=$1 program=$2 root bin='' help=0 arguments=()
  root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
  shift 2
  while (($#)); do
    case $1 in
      --bin-dir)
        (($# > 1)) || { echo "$tool: --bin-dir needs a folder (see --help)" >&2; exit 2; }
        bin=$2
        shift
        ;;
      --bin-dir=*) bin=${1#--bin-dir=} ;;
      --) arguments+=("$@"); break ;;
      *) [[ $1 == -h || $1 == --help ]] && help=1; arguments+=("$1") ;;
    esac
    shift
  done
  if [[ $bin ]]; then
    [[ -x $bin/$program ]] || { echo "$tool: --bin-dir $bin: no program $program in it" >&2; exit 2; }
  elif [[ ! -e $root/tools/build ]]; then
    bin=$root/bin  # of a bundle
  else
    bin=$root/build/release/bin
    if ((!help)); then
      [[ -x $bin/$program ]] || echo "$tool: building $program first, which may take minutes" >&2
      build_quietly "$root" "$program"
    fi
  fi
  use_fallback_libraries "$bin" "$program"
  if ((help)); then
    usage_text
    if [[ ! -x $bin/$program ]]; then
      echo "$program is not built yet; once it is (tools/build release $program), its own help follows here."
      exit 0
    fi
    echo
  fi
  exec "$bin/$program" "${arguments[@]}"
}

# If the program of a bundle does not find a suitable C++ library, uses the bundle's (as tarn_tools/launch_options.py).
use_fallback_libraries() {
  local fallback=$1/../lib/fallback status=0
  [[ -d $fallback && -x $1/$2 ]] || return 0
  "$1/$2" --help >/dev/null 2>&1 || status=$?
  ((status != 127)) || export LD_LIBRARY_PATH=$(realpath "$fallback")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

build_quietly() {
  local log
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  "$1/tools/build" release "$2" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  rm -f "$log"
}
