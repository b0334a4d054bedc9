#!/usr/bin/env bash
# Each way to install, tried in a clean Debian root: a wheel in a virtual environment, the .deb, make install, and the commands of
# packaging/Dockerfile. Each then passes the same five checks: version, doctor, run --ram-limit explains a Python program, the
# man page is found, a failure is explained (through Python where the package is there).
#
# Needs root, debootstrap and a Debian mirror. The base root is kept in $STOWAGE_ROOTS (/var/tmp/stowage-roots) between runs.
# Usage: install_roots.sh [docker|deb|make|wheel …]; all of them otherwise. Docker itself is not used: its RUN and COPY lines are.
. "$(dirname "$0")/../guards/lib.bash"
roots=${STOWAGE_ROOTS:-/var/tmp/stowage-roots}
suite=bookworm
mirror=${STOWAGE_MIRROR:-$(sed -nE 's/^URIs: *(http[^ ]*debian) *$/\1/p; s/^deb (\[[^]]*\] )?(http[^ ]*debian) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | head -n 1)}
ways=("$@")
[ $# -gt 0 ] || ways=(docker deb make wheel)
for need in debootstrap chroot unshare; do has $need || { skip "install_roots: no $need"; finish; }; done
[ "$(id -u)" = 0 ] || { skip "install_roots: needs root, for chroot and mount"; finish; }
unshare -m true 2> /dev/null || { skip "install_roots: mounts are not allowed here"; finish; }
[ -n "$mirror" ] || { skip "install_roots: no Debian mirror configured; set STOWAGE_MIRROR"; finish; }

mkdir -p "$roots"
if [ ! -d "$roots/base" ]; then
  rm -rf "$roots/base.partial"
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,man-db $suite "$roots/base.partial" "$mirror" > "$roots/debootstrap.log" 2>&1 ||
    { tail -n 5 "$roots/debootstrap.log"; skip "install_roots: debootstrap from $mirror failed"; finish; }
  mv "$roots/base.partial" "$roots/base"
fi

# fresh NAME: creates a new root $roots/NAME.
fresh() { rm -rf "${roots:?}/$1"; cp -a --reflink=auto "$roots/base" "$roots/$1"; mkdir "$roots/$1/try"; cp /etc/resolv.conf "$roots/$1/etc/"; }
# inside NAME COMMAND…: runs the command in that root, with mounts that end with it.
inside() {
  local root=$roots/$1; shift
  # shellcheck disable=SC2016
  unshare -m --propagation private bash -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/tmp" -o size=2G &&
    root=$1 && shift && exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/try LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' _ "$root" "$@"
}
put_sources() { # NAME FOLDER: the tracked files
  mkdir -p "$roots/$1$2"
  (cd "$source_dir" && git ls-files -z -co --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2> /dev/null) | tar xf - -C "$roots/$1$2"
}

cat > "$folder/checks.sh" << 'END'
# checks.sh VIRTUALENV|-: runs the five checks in the root.
cd /try || exit 1
python=python3
if [ "$1" != - ]; then PATH=$1/bin:$PATH python=$1/bin/python; fi
failed=0
try() { local name=$1; shift; if "$@" > log 2>&1; then echo "passed $name"; else sed 's/^/    /' log; echo "failed $name"; failed=1; fi; }
try version sh -c 'stowage --version | grep -E "^stowage [0-9]+\.[0-9]+"'
try doctor sh -c 'stowage doctor > found && grep -E "^install +ok" found || { cat found; exit 1; }'
printf 'held = []\nwhile True:\n    held.append(bytearray(8 << 20))\n' > grows.py
try ram_limit sh -c "stowage run --ram-limit 300M -- $python grows.py > said 2>&1; grep 'why: held: a list of' said || { cat said; exit 1; }"
try man_page sh -c 'man -w stowage && man -w stowage-run'
if [ "$1" != - ]; then
  try explain $python -c 'import stowage; text = repr(stowage.explain(MemoryError())); print(text); assert "host" in text.lower() and stowage.__version__'
else
  try explain sh -c 'echo "MemoryError" | stowage explain --message - | grep -i "host ran out of memory"'
fi
exit $failed
END

five_checks() { # NAME [VIRTUALENV]
  cp "$folder/checks.sh" "$roots/$1/try/"
  inside "$1" bash /try/checks.sh "${2:--}" > "$folder/$1.checks" 2>&1
  local code=$?
  cat "$folder/$1.checks"
  if [ $code = 0 ] && [ "$(grep -c '^passed ' "$folder/$1.checks")" = 5 ]; then ok "install_roots_$1: 5 of 5 checks"; else fail "install_roots_$1"; fi
}

# Runs the lines of the Dockerfile, stage by stage: RUN in the stage's root, COPY between roots.
docker_commands() {
  local stage=-1 folder_in=/ words
  while IFS= read -r line; do
    case $line in
      'FROM '*) stage=$((stage + 1)); folder_in=/; fresh "docker$stage" ;;
      'COPY --from=build '*) read -ra words <<< "$line"; mkdir -p "$roots/docker$stage${words[3]}"
        cp -a "$roots/docker0${words[2]}." "$roots/docker$stage${words[3]}" || return 1 ;;
      'COPY . '*) read -ra words <<< "$line"; put_sources "docker$stage" "${words[2]}" ;;
      'WORKDIR '*) folder_in=${line#WORKDIR } ;;
      'RUN '*) inside "docker$stage" bash -c "cd '$folder_in' && ${line#RUN }" > "$roots/docker$stage.log" 2>&1 ||
        { tail -n 20 "$roots/docker$stage.log"; return 1; } ;;
    esac
  done < "$source_dir/packaging/Dockerfile"
}

for way in "${ways[@]}"; do
  case $way in
    docker)
      if docker_commands; then
        cp "$roots"/docker0/src/dist/stowage_*.deb "$roots/"
        inside docker1 bash -c 'apt-get update && apt-get install -y --no-install-recommends python3' > /dev/null 2>&1
        five_checks docker1
      else
        fail install_roots_docker
      fi ;;
    deb)
      package=$(find "$source_dir/dist" "$roots" -maxdepth 1 -name 'stowage_*.deb' 2> /dev/null | xargs -r ls -t | head -n 1)
      if [ -z "$package" ]; then skip "install_roots_deb: no dist/stowage_*.deb; make deb, or run the way docker first"; continue; fi
      fresh deb
      cp "$package" "$roots/deb/try/"
      if inside deb bash -c 'apt-get update && cd /try && apt-get install -y ./stowage_*.deb' > "$roots/deb.log" 2>&1; then five_checks deb; else tail -n 20 "$roots/deb.log"; fail install_roots_deb; fi ;;
    make)
      fresh make
      put_sources make /src
      if inside make bash -c 'apt-get update && apt-get install -y --no-install-recommends make && cd /src && rm -rf build && make install' > "$roots/make.log" 2>&1; then five_checks make; else tail -n 20 "$roots/make.log"; fail install_roots_make; fi ;;
    wheel)
      wheel=$(find "$source_dir/dist" -maxdepth 1 -name "stowage_memory-*$(uname -m).whl" 2> /dev/null | xargs -r ls -t | head -n 1)
      if [ -z "$wheel" ]; then
        "${PYTHON:-python3}" -m pip wheel -q "$source_dir" --no-deps --wheel-dir "$folder/dist" --config-settings=build-dir="$source_dir/build/wheel" > "$folder/log" 2>&1 ||
          { tail -n 5 "$folder/log"; skip "install_roots_wheel: no dist/*.whl, and pip cannot build one here"; continue; }
        wheel=$(echo "$folder"/dist/*.whl)
      fi
      fresh wheel
      cp "$wheel" "$roots/wheel/try/"
      if inside wheel bash -c 'cd /try && python3 -m venv env && env/bin/pip install --no-index ./*.whl' > "$roots/wheel.log" 2>&1; then five_checks wheel /try/env; else tail -n 20 "$roots/wheel.log"; fail install_roots_wheel; fi ;;
  esac
done
for root in docker0 docker1 deb make wheel; do rm -rf "${roots:?}/$root"; done
finish
