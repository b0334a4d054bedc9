# The front door. `make demo` shows the main job, `make test` runs every test; both do their own set-up.
#
#   make            build (release)               make bench       benchmarks, peers side by side
#   make demo       see it work                   make test-gpu    the tests that need a device [SHARD=i/n]
#   make test       everything that must hold     make bench-gpu   the benchmarks that need a device
#   make test-long  the sweeps that take longer (tests/long)
#   make torture    faults, kills, fuzzing and hostile files, resumable [SECONDS=n in all] [JOBS=n] [PARTS=a,b] [SEED=n]
#   make matrix     every branch of the driver (stand-ins), every supported Debian and Ubuntu (needs root and debootstrap)
#   make lint       clang-tidy and cppcheck       make fuzz        long fuzzing [SECONDS=n each]
#   make install    [PREFIX=/usr/local]           make format      let clang-format decide
#   make wheels     Python wheels for both architectures, into dist/
#   make deb        a Debian package, into dist/  make dist        the release archive and its SBOM, into dist/
#   make site       the docs as a site, into build/site (needs mkdocs-material)
#
# CC=clang (or gcc) chooses the compiler. Ninja is used where it is, plain Makefiles where it is not.

SHELL := /bin/bash
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
SOURCES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.def' 2>/dev/null)

.PHONY: all build setup demo test test-long quick-test bench test-gpu bench-gpu fuzz torture matrix lint install wheels deb dist site format clean

all: build

# Configures a preset once, then builds it. $(call build,PRESET)
define build
	@tools/build.sh $(1)
endef

build: setup
	$(call build,release)

setup:
	@tools/setup.sh build

demo: setup
	@tools/demo.sh

# What a change must pass before it is shown to anybody: the release suite and the guards.
quick-test:
	@tools/setup.sh build
	$(call build,release)
	@tests/run.sh build/release --guards

test:
	@tools/setup.sh test
	$(call build,release)
	$(call build,asan)
	$(call build,tsan)
	@tools/wheel.sh build/wheel-dist > build/wheel.log 2>&1 || rm -rf build/wheel-dist # tests/python/package.sh says why
	@STOWAGE_TEST_WHEEL=$(CURDIR)/build/wheel-dist tests/run.sh build/release --guards --asan build/asan --tsan build/tsan

# What does not fit into the time of `make test`: every tests/long/*.sh, counted in the same way.
test-long:
	@tools/setup.sh test
	$(call build,release)
	@tests/run.sh build/release --long --times

bench: setup
	$(call build,release)
	@tools/bench.sh build/release

test-gpu: setup
	$(call build,release)
	@tests/run.sh build/release --gpu $(if $(SHARD),--shard $(SHARD))

bench-gpu: setup
	$(call build,release)
	@tools/bench.sh build/release --gpu

fuzz:
	@tools/setup.sh fuzz
	$(call build,fuzz stowage_fuzz)
	@tools/fuzz.sh build/fuzz $(or $(SECONDS),60)

# Seeded slices of everything that breaks programs; build/torture keeps what is done. `make test` runs a few slices of each part.
torture:
	@tools/setup.sh test
	@tools/setup.sh fuzz
	$(call build,release)
	$(call build,fuzz stowage_fuzz)
	@python3 tests/torture/torture.py build/release --fuzz build/fuzz --seconds $(or $(SECONDS),7200) --seed $(or $(SEED),0) \
	  --jobs $(JOBS) $(if $(PARTS),--parts $(PARTS))

matrix:
	@tools/setup.sh test
	$(call build,release)
	@tests/run.sh build/release --long --only long/matrix_

lint:
	@tools/setup.sh lint
	$(call build,release)
	@tools/lint.sh build/release

format:
	@clang-format -i $(filter %.c %.h,$(SOURCES))

install: setup
	$(call build,release stowage_parts)
	@cmake --install build/release --prefix "$(PREFIX)"

wheels:
	@tools/wheels.sh

deb: setup
	@tools/deb.sh

dist:
	@tools/dist.sh

site:
	@tools/site/build.sh

clean:
	rm -rf build dist
