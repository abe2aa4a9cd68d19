# SPDX-License-Identifier: Apache-2.0
# firmware/: the RTOS-style reference, its host port, and its tests.
FW := $(addprefix firmware/,core.c cepstra.c echo.c keyword.c)
FW_RING := firmware/link_ring.c firmware/session.c
FW_RPMSG := firmware/link_rpmsg.c firmware/rpmsg.c
FW_BRIDGE := firmware/bridge.c firmware/session.c
FW_HOST := firmware/host/main.c firmware/host/lock_down.c
FW_FLAGS := -Ifirmware -Ifirmware/host -Iclient
FW_STRICT := $(STRICT) -Wconversion $(FW_FLAGS)
FW_HEADERS := $(wildcard firmware/*.h firmware/host/*.h client/*.h) $(HEADERS)

.PHONY: firmware firmware-plain firmware-asan firmware-tsan firmware-freestanding firmware-cxx firmware-targets
all: firmware
test: firmware-plain firmware-asan firmware-tsan firmware-freestanding firmware-cxx firmware-targets
firmware: $(BUILD)/dpf-firmware $(BUILD)/dpf-firmware-rpmsg

$(BUILD)/dpf-firmware: $(FW) $(FW_RING) $(FW_HOST) firmware/host/wire_ring.c $(CLIENT) $(CORE) $(POSIX) src/route.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) $(CFLAGS) $(filter %.c,$^) -o $@ -pthread

$(BUILD)/dpf-firmware-rpmsg: $(FW) $(FW_RPMSG) $(FW_BRIDGE) $(FW_HOST) firmware/host/wire_rpmsg.c $(CLIENT) $(CORE) $(POSIX) src/route.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) -DDPF_FW_RPMSG $(CFLAGS) $(filter %.c,$^) -o $@ -pthread

# ---- tests: each on the rings, and behind a bridge that speaks rpmsg ----
FW_RIG := tests/firmware_rig.c $(FW) $(CORE) src/route.c src/table.c
FW_TESTS := firmware firmware_hostile firmware_threads
FW_BUILDS := $(FW_TESTS) firmware_rpmsg firmware_hostile_rpmsg
FW_SOURCES = tests/test_$(patsubst %_rpmsg,%,$*).c $(FW_RIG) $(if $(filter %_rpmsg,$*),-DDPF_FW_RPMSG $(FW_RPMSG) $(FW_BRIDGE),$(FW_RING))

$(FW_BUILDS:%=$(BUILD)/plain/test_%): $(BUILD)/plain/test_%: $(wildcard tests/*firmware*) $(FW) $(FW_RING) $(FW_RPMSG) $(FW_BRIDGE) $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) $(CFLAGS) $(FW_SOURCES) -o $@ -pthread

$(FW_BUILDS:%=$(BUILD)/asan/test_%): $(BUILD)/asan/test_%: $(wildcard tests/*firmware*) $(FW) $(FW_RING) $(FW_RPMSG) $(FW_BRIDGE) $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) -O1 -g $(ASAN) $(FW_SOURCES) -o $@ -pthread

$(BUILD)/plain/test_firmware_golden: tests/test_firmware_golden.c $(FW) $(FW_RPMSG) src/route.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) -DDPF_FW_RPMSG $(CFLAGS) $(filter %.c,$^) -o $@

$(BUILD)/asan/test_firmware_golden: tests/test_firmware_golden.c $(FW) $(FW_RPMSG) src/route.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) -DDPF_FW_RPMSG -O1 -g $(ASAN) $(filter %.c,$^) -o $@

$(BUILD)/tsan/test_firmware_threads: tests/test_firmware_threads.c $(FW_RIG) $(FW_RING) $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(FW_FLAGS) -O1 -g $(TSAN) -Wno-tsan tests/test_firmware_threads.c $(FW_RIG) $(FW_RING) -o $@ -pthread

firmware-plain: $(BUILD)/plain/test_firmware_golden $(FW_BUILDS:%=$(BUILD)/plain/test_%)
	@for one in $^; do echo $$one; $$one || exit 1; done

firmware-asan:
	@if echo 'int main(void){return 0;}' | $(CC) $(ASAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) firmware-asan-run; else echo "firmware-asan: skipped, $(CC) has no address and undefined sanitizers"; fi

.PHONY: firmware-asan-run
firmware-asan-run: $(BUILD)/asan/test_firmware_golden $(FW_BUILDS:%=$(BUILD)/asan/test_%)
	@for one in $^; do echo $$one; $$one || exit 1; done

firmware-tsan:
	@if echo 'int main(void){return 0;}' | $(CC) $(TSAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) $(BUILD)/tsan/test_firmware_threads && $(BUILD)/tsan/test_firmware_threads; \
	else echo "firmware-tsan: skipped, $(CC) has no thread sanitizer"; fi

# The core needs nothing but dpf and its port: no libc, and nothing that a compiler makes of loops and divisions.
FW_OBJECTS := core cepstra echo keyword link_ring session rpmsg bridge
firmware-freestanding: $(FW_OBJECTS:%=$(BUILD)/freestanding/firmware/%.o) $(BUILD)/freestanding/firmware/rpmsg/core.o $(BUILD)/freestanding/firmware/rpmsg/link_rpmsg.o
	@if nm -u $^ | grep ' U ' | grep -v ' U dpf_'; then echo "the firmware needs symbols from outside"; exit 1; fi
	@echo "firmware-freestanding: ok"

$(BUILD)/freestanding/firmware/%.o: firmware/%.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(FW_STRICT) -O2 -ffreestanding -fno-builtin -c $< -o $@

$(BUILD)/freestanding/firmware/rpmsg/%.o: firmware/%.c $(FW_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(FW_STRICT) -DDPF_FW_RPMSG -O2 -ffreestanding -fno-builtin -c $< -o $@

# A board's own code may be C++: the headers are, too.
firmware-cxx: $(BUILD)/freestanding/firmware/cepstra.o
	@mkdir -p $(BUILD)
	printf '#include "bridge.h"\n#include "core.h"\n#include "port.h"\nint main() { return sizeof(dpf_fw_core) == 0 || dpf_fw_log2(2) != 256; }\n' > $(BUILD)/firmware_cxx.cc
	$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -Wno-invalid-offsetof -Iinclude $(FW_FLAGS) $(BUILD)/firmware_cxx.cc $< -o $(BUILD)/firmware_cxx
	$(BUILD)/firmware_cxx
	$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -Wno-invalid-offsetof -Iinclude $(FW_FLAGS) -DDPF_FW_RPMSG -fsyntax-only $(BUILD)/firmware_cxx.cc
	@echo "firmware-cxx: ok"

# Other machines, real and emulated, of either byte order, and cppcheck.
firmware-targets:
	bash tests/firmware_targets.sh $(BUILD)/targets
