# Front door; meson and ninja do the work. `make help` lists what there is.
#
# B=DIR builds elsewhere, CC=clang with another compiler, V=1 shows the commands, DEMO=WORDS are
# options of the demo.
B ?= build
PREFIX ?= /usr/local
MESON := $(firstword $(wildcard /usr/bin/meson) meson)
NINJA := ninja $(if $(V),-v)

.DEFAULT_GOAL := all
.PHONY: all setup configure demo test check bench sanitize tsan fuzz tidy format wheel install uninstall clean help

all: configure ## build build/tool/rubato and build/bench/rubato-bench (installs what is missing first)
	@$(NINJA) -C $(B)

setup:
	@scripts/setup build

configure: setup
	@scripts/configure $(B) --prefix=$(PREFIX)

demo: configure ## one to three minutes: train a small GPT and a LeNet, see what they do
	@$(NINJA) -C $(B) tool/rubato
	@$(B)/tool/rubato demo $(DEMO)

test: ## build and run all tests (TESTS=WORD: the unit tests with the word in their names)
	@scripts/setup test
	@$(MAKE) --no-print-directory all
	@scripts/test $(B) $(TESTS)

check: ## the whole check, in a fresh clone of HEAD (half an hour or more)
	@scripts/check

bench: all ## measure training beside PyTorch on this machine (rubato bench --help names all comparisons)
	@$(B)/tool/rubato bench train

sanitize: ## unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/setup test
	@scripts/variant sanitize

tsan: ## tests of what has threads under ThreadSanitizer
	@scripts/setup test
	@scripts/variant tsan

fuzz: ## every fuzz target for FUZZ_SECONDS (default 20) each
	@scripts/setup check
	@scripts/variant fuzz

tidy: ## layers, names, sizes, banned calls, purity, format
	@scripts/setup check
	@$(MAKE) --no-print-directory all
	@$(B)/test/rubato-test --filter test_tidy
	@scripts/format --check

format: ## rewrite the sources in the form of .clang-format
	@scripts/format

wheel: ## build dist/rubato-*.whl, a Python package that brings its libraries along
	@scripts/setup wheel
	@scripts/wheel

install: all ## install programs, library, headers, manual pages and completions under PREFIX (DESTDIR works)
	@$(MESON) install -C $(B) --quiet $(if $(DESTDIR),--destdir $(DESTDIR))

# The headers are not in the list of what was installed, the program is: they are beside it.
uninstall: ## remove what make install put in place last
	@sed -n 's,/bin/rubato$$,/include/rubato,p' $(B)/meson-logs/install-log.txt 2>/dev/null | tr '\n' '\0' | xargs -0r rm -rf --
	@$(NINJA) -C $(B) uninstall

clean: ## remove every build
	rm -rf $(B) build-*

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do \
	    printf '  make %-10s %s\n' "$$name" "$$what"; done
