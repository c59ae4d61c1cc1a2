#!/bin/sh
# Install what the native build can use, where this user may. Nothing here is required: never fails, one line a miss.

install() { # install HEADER-OR-COMMAND-TEST DEBIAN-NAME FEDORA-NAME WHAT-FOR
    if eval "$1"; then return; fi
    if [ "$(id -u)" = 0 ]; then
        export DEBIAN_FRONTEND=noninteractive
        if command -v apt-get >/dev/null; then
            timeout 60 apt-get install -y -q "$2" </dev/null >/dev/null 2>&1 && return
            timeout 60 apt-get update -q </dev/null >/dev/null 2>&1
            timeout 120 apt-get install -y -q "$2" </dev/null >/dev/null 2>&1 && return
        elif command -v dnf >/dev/null; then
            timeout 240 dnf install -y -q "$3" </dev/null >/dev/null 2>&1 && return
        fi
    fi
    echo "grinnder: $2 is not installed ($4; optional); to have it: apt-get install $2, or dnf install $3" >&2
}

install 'command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null' \
    g++ gcc-c++ "without a C++ compiler torch replaces the native kernels, slower"
install 'test -f /usr/include/liburing.h' liburing-dev liburing-devel "for io_uring"
exit 0
