# SPDX-License-Identifier: Apache-2.0
# libdpfedge: the shared library behind dpf/client.h, its pkg-config file, and its tests against a server in a thread.
CLIENT := client/client.c client/client_open.c
CLIENT_VERSION := 1.0
PREFIX ?= /usr/local
INCLUDES := $(wildcard client/*.h) $(HEADERS)
LIBRARY := $(BUILD)/libdpfedge.so.$(CLIENT_VERSION)

.PHONY: client client-plain client-asan client-tsan client-symbols client-cxx client-cross install
all: client
test: client-plain client-asan client-tsan client-symbols client-cxx client-cross
client: $(LIBRARY) $(BUILD)/dpfedge.pc

$(LIBRARY): $(CLIENT) $(CORE) $(POSIX) client/dpfedge.map $(INCLUDES)
	@mkdir -p $(BUILD)
	$(CC) $(STRICT) -Iclient $(CFLAGS) -fPIC -shared -Wl,-soname,libdpfedge.so.1 -Wl,--version-script=client/dpfedge.map \
	  -Wl,--no-undefined -Wl,-z,relro,-z,now $(CLIENT) $(CORE) $(POSIX) -o $@ -pthread
	ln -sf libdpfedge.so.$(CLIENT_VERSION) $(BUILD)/libdpfedge.so.1
	ln -sf libdpfedge.so.1 $(BUILD)/libdpfedge.so

$(BUILD)/dpfedge.pc: client/dpfedge.pc.in client.mk
	@mkdir -p $(BUILD)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(CLIENT_VERSION)|' $< > $@

# Into $(DESTDIR)$(PREFIX): the header, the library and the pkg-config file.
install: client
	install -D -m 644 include/dpf/client.h $(DESTDIR)$(PREFIX)/include/dpf/client.h
	install -D -m 755 $(LIBRARY) $(DESTDIR)$(PREFIX)/lib/libdpfedge.so.$(CLIENT_VERSION)
	ln -sf libdpfedge.so.$(CLIENT_VERSION) $(DESTDIR)$(PREFIX)/lib/libdpfedge.so.1
	ln -sf libdpfedge.so.1 $(DESTDIR)$(PREFIX)/lib/libdpfedge.so
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(CLIENT_VERSION)|' client/dpfedge.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/dpfedge.pc

CLIENT_TEST := tests/test_client.c tests/client_threads.c tests/fake_server.c $(CLIENT) $(CORE) $(POSIX)

$(BUILD)/plain/test_client: $(CLIENT_TEST) $(INCLUDES)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -Iclient $(CFLAGS) $(CLIENT_TEST) -o $@ -pthread

$(BUILD)/asan/test_client: $(CLIENT_TEST) $(INCLUDES)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -Iclient -O1 -g $(ASAN) $(CLIENT_TEST) -o $@ -pthread

$(BUILD)/tsan/test_client: $(CLIENT_TEST) $(INCLUDES)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -Iclient -O1 -g $(TSAN) $(CLIENT_TEST) -o $@ -pthread

client-plain: $(BUILD)/plain/test_client
	$(BUILD)/plain/test_client

client-asan:
	@if echo 'int main(void){return 0;}' | $(CC) $(ASAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) $(BUILD)/asan/test_client && $(BUILD)/asan/test_client; \
	else echo "client-asan: skipped, $(CC) has no address and undefined sanitizers"; fi

client-tsan:
	@if echo 'int main(void){return 0;}' | $(CC) $(TSAN) -x c - -o /dev/null 2>/dev/null; then \
	  $(MAKE) $(BUILD)/tsan/test_client && $(BUILD)/tsan/test_client; \
	else echo "client-tsan: skipped, $(CC) has no thread sanitizer"; fi

# The library shows what the header declares, with its version, and nothing else.
client-symbols: $(LIBRARY)
	nm -D --defined-only $< | sed -n 's/.* T \(.*\)@@DPFEDGE_1\.0/\1/p' | sort > $(BUILD)/symbols
	grep -o '\bdpf_client_[a-z_]*(' include/dpf/client.h | tr -d '(' | sort -u > $(BUILD)/declared
	diff $(BUILD)/declared $(BUILD)/symbols
	@if nm -D --defined-only $< | grep -v ' A DPFEDGE_1.0' | grep -v '@@DPFEDGE_1.0$$'; then echo "a symbol without a version"; exit 1; fi
	@echo "client-symbols: ok"

client-cxx: $(LIBRARY)
	printf '#include "dpf/client.h"\nint main() { dpf_client_options o; dpf_client_options_init(&o, sizeof o); return dpf_client_open(nullptr, nullptr, nullptr, 0) != DPF_CLIENT_BAD || o.bytes != sizeof o; }\n' > $(BUILD)/client_cxx.cc
	$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude $(BUILD)/client_cxx.cc -L$(BUILD) -ldpfedge -Wl,-rpath,$(abspath $(BUILD)) -o $(BUILD)/client_cxx
	$(BUILD)/client_cxx
	@echo "client-cxx: ok"

client-cross:
	@if command -v $(CROSS)gcc >/dev/null && echo '#include <stdio.h>' | $(CROSS)gcc -E - >/dev/null 2>&1; then \
	  $(MAKE) client BUILD=$(BUILD)/cross CC=$(CROSS)gcc && echo "client-cross: ok"; \
	else echo "client-cross: skipped, no $(CROSS)gcc with a C library"; fi
