# SPDX-License-Identifier: Apache-2.0
# A thin front to CMake's presets. On a fresh Debian 12, `make run` and `make test` are all it takes: both
# install what is missing (tools/setup.sh), as root or through sudo.
#
#   run           a tour of the runtime in the terminal
#   test          the whole suite, release and dev builds
#   asan, tsan    the whole suite under AddressSanitizer and UBSan, under ThreadSanitizer
#   aarch64       cross build, unit tests under qemu-user
#   clang         build with clang, warnings as errors: the library, its programs, and the tests that use it as users do
#   check         layers, headers, format, tls, tidy: each a target of its own
#   models        the protocols' models under Spin, to exhaustion, and their mutants
#   mutants       the memory orders of the files under systematic test, each weakened: some test must fail
#   bench         the quick benchmarks against the peers; bench-full takes its time; bench-growth: the same over n and Ps;
#                 bench-readme puts the last run into README.md
#   instructions  the hot paths' instructions, counted, against the table in bench/instructions
#   chaos         the conformance suite under SEEDS seeds (3) of delays, forced moves and stops, and the tests of
#                 failing system calls (HACKING, Chaos); the whole suite under seed 1: make test-chaos
#   storm         the conformance suite while SIGURG, SIGALRM and SIGPROF come to every thread at 1 kHz
#   soak          everything at once for HOURS (1; 0.05 will do), audited, watched and measured; SEED brings one back
#   soak-stress   the stress suite for SOAK seconds a test (600), and 10^8 hand-offs (tools/soak_stress.sh); FILTER picks
#   format-fix    rewrites the sources as .clang-format wants them
#   setup, clean
JOBS ?= $(shell nproc)
CTEST_FLAGS ?=

.DEFAULT_GOAL := test
.PHONY: run test test-% asan tsan aarch64 clang check layers headers format format-fix tls tidy models mutants \
        bench bench-full bench-growth bench-readme instructions chaos storm \
        soak soak-stress setup setup-ci setup-bench clean build-%

run: setup
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target example_tour
	build/release/examples/tour

test: test-release test-dev
asan tsan: %: test-%
aarch64: setup-ci test-aarch64
clang: setup-ci build-clang

build-%: setup
	cmake --preset $* >/dev/null
	cmake --build --preset $* -j $(JOBS)

# The wrapper matters to sanitized builds only, and costs the others nothing.
test-%: build-%
	tools/with_sanitizer_env.sh ctest --preset $* -j $(JOBS) $(CTEST_FLAGS)

check: layers headers format tls tidy

layers:
	tools/check_layers.py --self-test
	tools/check_layers.py

headers: setup-ci
	JOBS=$(JOBS) tools/check_headers.sh

format format-fix: setup-ci
	find include src tests examples bench tools -name '*.cc' -o -name '*.h' -o -name '*.hpp' -o -name '*.cpp' | \
	  xargs clang-format-14 $(if $(filter format,$@),--dry-run -Werror,-i)

tls: setup
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target weft
	tools/check_tls.py --self-test
	tools/check_tls.py build/release

tidy: setup-ci
	cmake --preset clang >/dev/null
	run-clang-tidy-14 -quiet -p build/clang -j $(JOBS) "$(CURDIR)/src/.*\.cc$$" >build/tidy.log 2>&1 || \
	  { sed -nE 's/\x1b\[[0-9;]*m//g; s|^$(CURDIR)/||; /(warning|error): /p' build/tidy.log | sort -u; exit 1; }

models: setup-ci
	tools/check_models.py -j $(JOBS)

mutants: setup
	cmake --preset release >/dev/null
	tools/mutants.py --self-test
	tools/mutants.py -j $(JOBS)

bench: setup setup-bench
	bench/run.py --quick
bench-full: setup setup-bench
	bench/run.py --full
bench-growth: setup setup-bench
	bench/growth.py
bench-readme:
	bench/readme.py

instructions: setup-ci
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target hot_paths
	tools/check_instructions.py --self-test
	tools/check_instructions.py -j $(JOBS)

SEEDS ?= 3
FIRST ?= 1
chaos: setup
	cmake --preset chaos >/dev/null
	cmake --build --preset chaos -j $(JOBS) --target weft_conformance weft_chaos
	tools/chaos.py build/chaos/tests/weft_chaos --seeds 1
	tools/chaos.py build/chaos/tests/weft_conformance --seeds $(SEEDS) --first $(FIRST) --no-dead

storm: setup
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target weft_conformance weft_storm
	tools/storm.py build/release/tests/weft_storm build/release/tests/weft_conformance

HOURS ?= 1
soak: setup
	cmake --preset release >/dev/null
	cmake --build --preset release -j $(JOBS) --target weft_soak
	build/release/tests/weft_soak --hours=$(HOURS) $(if $(SEED),--seed=$(SEED))

soak-stress: build-release
	tools/soak_stress.sh build/release/tests/weft_stress '$(FILTER)'

setup:
	@tools/setup.sh base
setup-ci:
	@tools/setup.sh base ci
setup-bench:
	@tools/setup.sh bench

clean:
	rm -rf build
