# SPDX-License-Identifier: Apache-2.0
# Routing's part of the Makefile: dpf/xxh64.h, route.h, table.h and health.h, which need nothing of the rest.
ROUTE := src/health.c src/route.c src/table.c

.PHONY: route route-plain route-asan route-tsan route-cxx route-targets
test: route
route: route-plain route-asan route-tsan route-cxx route-targets
all: $(BUILD)/libdpf.a
$(BUILD)/libdpf.a: $(patsubst src/%.c,$(BUILD)/%.o,$(ROUTE))
freestanding: $(patsubst src/%.c,$(BUILD)/freestanding/%.o,$(ROUTE))

route-plain: $(patsubst %,$(BUILD)/plain/test_%,route route_death health)
	$(BUILD)/plain/test_route
	$(BUILD)/plain/test_route_death
	$(BUILD)/plain/test_health

$(patsubst %,$(BUILD)/plain/test_%,route route_death health): $(BUILD)/plain/test_%: tests/test_%.c $(ROUTE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(CFLAGS) $(if $(filter route_death,$*),-DDPF_STEP_HOOK) $< $(ROUTE) -o $@ -pthread

$(patsubst %,$(BUILD)/asan/test_%,route route_death health): $(BUILD)/asan/test_%: tests/test_%.c $(ROUTE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -O1 -g $(ASAN) $(if $(filter route_death,$*),-DDPF_STEP_HOOK) $< $(ROUTE) -o $@ -pthread

# The sanitizer knows no fences; every access it sees is atomic all the same.
$(BUILD)/tsan/test_route: tests/test_route.c $(ROUTE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -O1 -g $(TSAN) -Wno-tsan $< $(ROUTE) -o $@ -pthread

route-asan:
	@if echo 'int main(void){return 0;}' | $(CC) $(ASAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) $(patsubst %,$(BUILD)/asan/test_%,route route_death health) && $(BUILD)/asan/test_route && $(BUILD)/asan/test_route_death && \
	  $(BUILD)/asan/test_health; \
	else echo "route-asan: skipped, $(CC) has no address and undefined sanitizers"; fi

route-tsan:
	@if echo 'int main(void){return 0;}' | $(CC) $(TSAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) $(BUILD)/tsan/test_route && $(BUILD)/tsan/test_route; \
	else echo "route-tsan: skipped, $(CC) has no thread sanitizer"; fi

# The same headers, the same golden vectors, compiled as C++.
route-cxx: $(BUILD)/libdpf.a
	$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Werror -Iinclude -Itests tests/route_cxx.cc $(BUILD)/libdpf.a -o $(BUILD)/route_cxx
	$(BUILD)/route_cxx
	@echo "route-cxx: ok"

# Other machines, real and emulated, eBPF and cppcheck: with clang from here or from Debian's packages.
route-targets:
	bash tests/targets.sh $(BUILD)/targets

# What tests/bench/bench_route.py measures beside Python.
$(BUILD)/route_bench: bench/route_bench.c bench/route_peers.h $(ROUTE) $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -O2 $< $(ROUTE) -o $@
