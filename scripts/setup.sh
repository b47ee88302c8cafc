#!/usr/bin/env bash
# Brings what this machine lacks for building flowspace, or says what that is. Sourced by the other scripts; does nothing when
# all is there. Usage: . scripts/setup.sh [no-milp|cbc]
#   (nothing)  with HiGHS, as by default
#   no-milp    without a MILP engine (--no-default-features)
#   cbc        with HiGHS and CBC (--features cbc, and with Parquet, which needs nothing of the machine, cbc,parquet)
# Ends with exit code 69 where something is missing that it cannot install.
set -euo pipefail

setup_purpose=${1:-}
setup_unavailable=69

if ! command -v cargo >/dev/null 2>&1; then
    echo "flowspace needs Rust 1.89 or newer (cargo was not found): install it from https://rustup.rs, then run this again." >&2
    exit "$setup_unavailable"
fi
read -r _ setup_version _ < <(cargo --version)
IFS=.- read -r setup_major setup_minor _ <<<"$setup_version"
if [ "$setup_major" -eq 1 ] && [ "$setup_minor" -lt 89 ]; then
    echo "flowspace needs Rust 1.89 or newer, and cargo is $setup_version: bring a newer one from https://rustup.rs (Debian's own is too old), then run this again." >&2
    exit "$setup_unavailable"
fi

# The needs, each tried by itself: what is installed counts, not what it is called.
setup_links() { # compiler, language, program, libraries
    local out status=0
    command -v "$1" >/dev/null 2>&1 || return 1
    out=$(mktemp)
    printf '%s\n' "$3" | "$1" -x "$2" - -o "$out" "${@:4}" 2>/dev/null || status=1
    rm -f "$out"
    return "$status"
}
setup_has_certificates() {
    local file
    for file in "${SSL_CERT_FILE:-}" "${CARGO_HTTP_CAINFO:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
        /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
        [ -n "$file" ] && [ -s "$file" ] && return 0
    done
    return 1
}
setup_needs=()
setup_links cc c 'int main(void) { return 0; }' || setup_needs+=(cc)
if [ "$setup_purpose" != no-milp ]; then
    setup_links "${CXX:-c++}" c++ '#include <vector>
int main() { return std::vector<int>().size(); }' || setup_needs+=(c++)
fi
setup_has_certificates || setup_needs+=(certificates)
if [ "$setup_purpose" = cbc ]; then
    setup_links cc c 'int main(void) { return 0; }' -lCbcSolver || setup_needs+=(cbc)
fi
[ "${#setup_needs[@]}" -gt 0 ] || return 0 2>/dev/null || exit 0

# A need in words, and the packages that bring it, by package manager.
setup_words() {
    case $1 in
    cc) echo "a C compiler and linker (cc)" ;;
    c++) echo "a C++ compiler (c++), for the MILP solver HiGHS" ;;
    certificates) echo "certificates (ca-certificates), without which cargo can fetch nothing" ;;
    cbc) echo "CBC (libCbcSolver), the second MILP solver of the tests" ;;
    esac
}
setup_packages() {
    case $1:$2 in
    apt-get:cc) echo gcc libc6-dev ;;
    apt-get:c++) echo g++ ;;
    apt-get:cbc) echo coinor-libcbc-dev ;;
    dnf:cc) echo gcc ;;
    dnf:c++) echo gcc-c++ ;;
    dnf:cbc) echo coin-or-Cbc-devel ;;
    pacman:cc | pacman:c++) echo gcc ;;
    pacman:cbc) echo coin-or-cbc ;;
    brew:cc | brew:c++) ;; # of Xcode's tools
    brew:cbc) echo cbc ;;
    *:certificates) echo ca-certificates ;;
    esac
}
setup_manager=
for setup_candidate in apt-get dnf pacman brew; do
    if command -v "$setup_candidate" >/dev/null 2>&1; then
        setup_manager=$setup_candidate
        break
    fi
done
setup_missing=()
setup_command=
if [ -n "$setup_manager" ]; then
    for setup_need in "${setup_needs[@]}"; do
        for setup_package in $(setup_packages "$setup_manager" "$setup_need"); do
            case " ${setup_missing[*]-} " in *" $setup_package "*) ;; *) setup_missing+=("$setup_package") ;; esac
        done
    done
    case $setup_manager in
    apt-get) setup_command="apt-get install ${setup_missing[*]-}" ;;
    dnf) setup_command="dnf install ${setup_missing[*]-}" ;;
    pacman) setup_command="pacman -S --needed ${setup_missing[*]-}" ;;
    brew)
        [ "${#setup_missing[@]}" -eq 0 ] || setup_command="brew install ${setup_missing[*]}"
        case " ${setup_needs[*]} " in *" cc "* | *" c++ "*) setup_command="xcode-select --install${setup_command:+; $setup_command}" ;; esac
        ;;
    esac
fi

# Only apt-get is run from here, by root or by sudo.
setup_sudo=none
if [ "$setup_manager" = apt-get ]; then
    if [ "$(id -u)" -eq 0 ]; then
        setup_sudo=
    elif command -v sudo >/dev/null 2>&1; then
        if sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; then setup_sudo=sudo; fi
    fi
fi
if [ "$setup_sudo" != none ]; then
    echo "flowspace: installing with apt-get: ${setup_missing[*]}" >&2
    $setup_sudo apt-get update -qq
    $setup_sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${setup_missing[@]}" >/dev/null
    return 0 2>/dev/null || exit 0
fi
{
    echo "flowspace's build needs what this machine lacks:"
    for setup_need in "${setup_needs[@]}"; do echo "  $(setup_words "$setup_need")"; done
    if [ -n "$setup_command" ]; then
        echo "Nothing was installed. An administrator would do it with:"
        echo "  $setup_command"
    else
        echo "Nothing was installed: no package manager that this script knows (apt-get, dnf, pacman, brew) was found."
    fi
    case " ${setup_needs[*]} " in
    *" cc "* | *" certificates "*) ;;
    *" c++ "*) echo "Or without a MILP engine (the exact engines are all there): scripts/quickstart.sh --no-milp" ;;
    *) echo "Or the tests without CBC: cargo test --release --locked" ;;
    esac
    echo "Then run this again."
} >&2
exit "$setup_unavailable"
