#!/usr/bin/env bash
# Brings what a fresh Debian machine lacks for building flowspace. Sourced by the other scripts; does nothing when all
# is there. Usage: . scripts/setup.sh [cbc]
set -euo pipefail

if ! command -v cargo >/dev/null 2>&1; then
    echo "flowspace needs Rust 1.89 or newer (cargo was not found): install it from https://rustup.rs, then run this again." >&2
    exit 1
fi

missing=()
command -v cmake >/dev/null 2>&1 || missing+=(cmake)
command -v c++ >/dev/null 2>&1 || missing+=(g++)
# bindgen, used to build HiGHS, loads libclang at build time. libclang-cpp, which other packages bring, is not it.
has_libclang() {
    local folder
    for folder in /usr/lib /usr/lib64 /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu; do
        if compgen -G "$folder/libclang.so*" >/dev/null || compgen -G "$folder/libclang-[0-9]*.so*" >/dev/null; then
            return 0
        fi
    done
    return 1
}
if [ -z "${LIBCLANG_PATH:-}" ] && ! has_libclang; then
    missing+=(libclang-dev)
fi
if [ "${1:-}" = cbc ] && ! compgen -G '/usr/lib/*-linux-gnu/libCbcSolver.so' >/dev/null; then
    missing+=(coinor-libcbc-dev)
fi

if [ "${#missing[@]}" -gt 0 ]; then
    echo "installing with apt-get: ${missing[*]}" >&2
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
