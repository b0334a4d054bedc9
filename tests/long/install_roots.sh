#!/usr/bin/env bash
# Each way to install, tried in a clean root of Debian or Ubuntu: a wheel in a virtual environment, pip install . there, the .deb, make install,
# and the commands of packaging/Dockerfile. Each then passes the same five checks: version, doctor, run --ram-limit explains a Python program, the
# man page is found, a failure is explained (through Python where the package is there).
#
# Needs root, debootstrap and a mirror. The clean roots are kept in $STOWAGE_ROOTS (/var/tmp/stowage-roots) between runs.
# $STOWAGE_SUITE chooses another release than Debian's bookworm (jammy, trixie, …); tests/long/matrix_roots.sh tries them all.
# Usage: install_roots.sh [docker|deb|make|pip|wheel …]; all of them otherwise. Docker itself is not used: its RUN and COPY lines are.
. "$(dirname "$0")/../guards/lib.bash"
roots=${STOWAGE_ROOTS:-/var/tmp/stowage-roots}
suite=${STOWAGE_SUITE:-bookworm}
options=() script=()
mirror=${STOWAGE_MIRROR:-$(sed -nE 's/^URIs: *(http[^ ]*debian) *$/\1/p; s/^deb (\[[^]]*\] )?(http[^ ]*debian) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | head -n 1)}
case $suite in
  focal | jammy | noble | resolute) # Python's venv is in universe
    mirror=${STOWAGE_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} options=(--components=main,universe)
    [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/gutsy) ;; # as every later one
esac
name=install_roots
[ "$suite" = bookworm ] || name=install_${suite}
ways=("$@")
[ $# -gt 0 ] || ways=(docker deb make pip wheel)
for need in debootstrap chroot unshare; do has $need || { skip "install_roots: no $need"; finish; }; done
[ "$(id -u)" = 0 ] || { skip "install_roots: needs root, for chroot and mount"; finish; }
unshare -m true 2> /dev/null || { skip "install_roots: mounts are not allowed here"; finish; }
[ -n "$mirror" ] || { skip "install_roots: no Debian mirror configured; set STOWAGE_MIRROR"; finish; }

mkdir -p "$roots"
if [ ! -d "$roots/$suite" ]; then
  rm -rf "${roots:?}/$suite.partial"
  debootstrap --variant=minbase "${options[@]}" --include=ca-certificates,python3,python3-venv,man-db "$suite" "$roots/$suite.partial" "$mirror" \
    "${script[@]}" > "$roots/$suite.log" 2>&1 ||
    { tail -n 5 "$roots/$suite.log"; skip "$name: debootstrap of $suite from $mirror failed"; finish; }
  mv "$roots/$suite.partial" "$roots/$suite"
fi
glibc=$(chroot "$roots/$suite" ldd --version 2> /dev/null | sed -nE '1s/.* ([0-9.]+)$/\1/p')

# fresh NAME: a new root $roots/NAME, with this machine's way to the network: name servers, certificates, package index.
fresh() {
  local file
  rm -rf "${roots:?}/$1"; cp -a --reflink=auto "$roots/$suite" "$roots/$1"; mkdir "$roots/$1/try"
  for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do [ ! -e $file ] || cp -L $file "$roots/$1$file"; done
}
# inside NAME COMMAND…: runs it in that root, with mounts that go away with it.
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
  try explain sh -c 'echo "MemoryError" | stowage explain --message - | grep host_limit'
fi
exit $failed
END

five_checks() { # NAME [VIRTUALENV]
  cp "$folder/checks.sh" "$roots/$1/try/"
  inside "$1" bash /try/checks.sh "${2:--}" > "$folder/$1.checks" 2>&1
  local code=$?
  cat "$folder/$1.checks"
  if [ $code = 0 ] && [ "$(grep -c '^passed ' "$folder/$1.checks")" = 5 ]; then ok "${name}_$1: 5 of 5 checks, glibc $glibc"; else fail "${name}_$1"; fi
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
        fail "${name}_docker"
      fi ;;
    deb)
      package=$(find "$source_dir/dist" "$roots" -maxdepth 1 -name 'stowage_*.deb' 2> /dev/null | xargs -r ls -t | head -n 1)
      if [ -z "$package" ]; then skip "${name}_deb: no dist/stowage_*.deb; make deb, or run the way docker first"; continue; fi
      fresh deb
      cp "$package" "$roots/deb/try/"
      if inside deb bash -c 'apt-get update && cd /try && apt-get install -y ./stowage_*.deb' > "$roots/deb.log" 2>&1; then five_checks deb; else tail -n 20 "$roots/deb.log"; fail "${name}_deb"; fi ;;
    make)
      fresh make
      put_sources make /src
      if inside make bash -c 'apt-get update && apt-get install -y --no-install-recommends make && cd /src && rm -rf build && make install' > "$roots/make.log" 2>&1; then five_checks make; else tail -n 20 "$roots/make.log"; fail "${name}_make"; fi ;;
    pip)
      fresh pip
      put_sources pip /src
      if ! inside pip bash -c 'rm -rf /src/build && /src/tools/setup.sh build && python3 -m venv /try/env' > "$roots/pip.log" 2>&1; then tail -n 20 "$roots/pip.log"; fail "${name}_pip"; continue; fi
      # The build needs scikit-build-core, from a package index.
      if ! inside pip /try/env/bin/pip download -q --no-deps -d /try/index scikit-build-core >> "$roots/pip.log" 2>&1; then skip "${name}_pip: pip reaches no package index in the root"; continue; fi
      if inside pip /try/env/bin/pip install /src >> "$roots/pip.log" 2>&1; then five_checks pip /try/env; else tail -n 20 "$roots/pip.log"; fail "${name}_pip"; fi ;;
    wheel)
      wheel=$(find "$source_dir/dist" -maxdepth 1 -name "stowage_memory-*$(uname -m).whl" 2> /dev/null | xargs -r ls -t | head -n 1)
      if [ -z "$wheel" ]; then
        "${PYTHON:-python3}" -m pip wheel -q "$source_dir" --no-deps --wheel-dir "$folder/dist" --config-settings=build-dir="$source_dir/build/wheel" > "$folder/log" 2>&1 ||
          { tail -n 5 "$folder/log"; skip "${name}_wheel: no dist/*.whl, and pip cannot build one here"; continue; }
        wheel=$(echo "$folder"/dist/*.whl)
      fi
      fresh wheel
      cp "$wheel" "$roots/wheel/try/"
      # pip before 20.3 does not know the tag manylinux_2_28: Ubuntu 20.04 has 20.0. It is upgraded first, as docs/python.md says.
      old=$(inside wheel bash -c 'cd /try && python3 -m venv env && env/bin/pip --version && env/bin/python --version' 2> /dev/null | tr '\n' ' ')
      if [[ $old =~ ^pip\ (1[0-9]|20\.[012])[.\ ].*Python\ (3\.[0-9]+) ]]; then
        "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary :all: --python-version "${BASH_REMATCH[2]}" -d "$roots/wheel/try/pip" pip > "$folder/log" 2>&1 ||
          { tail -n 5 "$folder/log"; skip "${name}_wheel: its pip is too old, and no newer one can be downloaded"; continue; }
        inside wheel bash -c 'cd /try && env/bin/pip install --no-index pip/*.whl' > "$roots/wheel.log" 2>&1
      fi
      if inside wheel bash -c 'cd /try && env/bin/pip install --no-index ./*.whl' > "$roots/wheel.log" 2>&1; then five_checks wheel /try/env; else tail -n 20 "$roots/wheel.log"; fail "${name}_wheel"; fi ;;
  esac
done
for root in docker0 docker1 deb make pip wheel; do rm -rf "${roots:?}/$root"; done
finish
