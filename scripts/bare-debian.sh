#!/usr/bin/env bash
# Runs README's commands, word for word, where a stranger would: in a bare Debian with nothing but Rust and git, made by debootstrap.
# For root on any Debian; run it before each release. Usage: scripts/bare-debian.sh [FOLDER of the root; a new one under /var/tmp]
#
# The root is a minbase of Debian's bookworm. Rust is this machine's own (Debian's is too old, and rustup may be out of reach), the
# project is the last commit of this checkout. How apt and cargo of this machine find their registries (sources, apt.conf, proxies,
# CARGO_* and ~/.cargo/config.toml, certificates of its own) is carried over; credentials are not.
set -euo pipefail
cd "$(dirname "$0")/.."
project=$PWD
suite=bookworm

[ "$(id -u)" -eq 0 ] || { echo "scripts/bare-debian.sh: only root can make a Debian root" >&2; exit 1; }
if ! command -v debootstrap >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi
root=${1:-$(mktemp -d /var/tmp/flowspace-bare.XXXXXX)}
mkdir -p "$root"
root=$(cd "$root" && pwd)
[ -z "$(ls -A "$root")" ] || { echo "scripts/bare-debian.sh: $root is not empty" >&2; exit 1; }
mounted=
leave() {
    [ -z "$mounted" ] || umount "$root/proc"
    if [ -n "${keep:-}" ]; then echo "the root stays in $root"; else rm -rf "$root"; fi
}
trap leave EXIT

# The proxies that apt is told of hold for debootstrap too.
for scheme in http https; do
    name=${scheme}_proxy
    proxy=$(apt-config shell value "Acquire::$scheme::Proxy" | sed -n "s/^value='\(.*\)'$/\1/p")
    if [ -z "${!name:-}" ] && [ -n "$proxy" ] && [ "$proxy" != DIRECT ]; then export "$name=$proxy"; fi
done
# The archive that this machine's apt takes that suite from, if it does.
archive=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | awk -v s="$suite" '$2 == s && !found { print $1; found = 1 }')
echo "== a minbase of Debian $suite with git, in $root"
time debootstrap --variant=minbase --include=git "$suite" "$root" "${archive:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
    { tail -20 "$root.log" >&2; exit 1; }
rm -f "$root.log"

echo "== Rust of this machine, and how it finds registries"
mkdir -p "$root/opt/rust" "$root/root/.cargo"
tar -C "$(rustc --print sysroot)" --exclude=./share -cf - . | tar -C "$root/opt/rust" -xf -
if [ -n "$archive" ]; then
    for part in sources.list sources.list.d apt.conf apt.conf.d keyrings trusted.gpg.d; do
        [ ! -e "/etc/apt/$part" ] || { rm -rf "$root/etc/apt/$part" && cp -rL "/etc/apt/$part" "$root/etc/apt/"; }
    done
    cp -rL /usr/share/keyrings/. "$root/usr/share/keyrings/"
fi
carried=()
carry() { # a file, to the same place
    [ ! -f "$1" ] || install -D -m 644 "$1" "$root$1"
}
for name in $(compgen -e); do
    case $name in
    CARGO_HOME | CARGO_TARGET_DIR | CARGO_BUILD_TARGET_DIR | CARGO_MANIFEST_* | CARGO_PKG_* | *TOKEN* | *CREDENTIAL*) ;;
    CARGO_HTTP_* | CARGO_NET_* | CARGO_REGISTR* | CARGO_SOURCE_* | *_proxy | *_PROXY) carried+=("$name=${!name}") ;;
    esac
done
for name in SSL_CERT_FILE CARGO_HTTP_CAINFO; do
    if [ -n "${!name:-}" ]; then
        carry "${!name}"
        [ "$name" = CARGO_HTTP_CAINFO ] || carried+=("$name=${!name}")
    fi
done
for name in config config.toml; do
    [ ! -f "${CARGO_HOME:-$HOME/.cargo}/$name" ] || cp "${CARGO_HOME:-$HOME/.cargo}/$name" "$root/root/.cargo/"
done
# Certificates that an administrator added to this machine; they count once ca-certificates is installed.
if [ -d /usr/local/share/ca-certificates ]; then
    mkdir -p "$root/usr/local/share/ca-certificates"
    cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
fi
for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp -L "$file" "$root$file"; done
mount -t proc proc "$root/proc" 2>/dev/null && mounted=1 || echo "(no /proc in the root: this machine does not let it be mounted)"
inside() {
    chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${carried[@]+"${carried[@]}"} /bin/bash -c "$1"
}

git bundle create --quiet "$root/root/flowspace.bundle" HEAD
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "(what is not committed here is not in it)"
inside 'cd /root && git clone --quiet flowspace.bundle flowspace && cd flowspace && git log -1 --format="flowspace %h: %s" && cargo --version'

# The first block of commands below "Two commands", without its comments.
mapfile -t commands < <(awk '/^## Two commands/ { below = 1 } below && /^```/ { if (inside) exit; inside = 1; next } below && inside' "$project/README.md" |
    sed 's/[[:space:]]*#.*//' | grep .)
[ "${#commands[@]}" -eq 2 ] || { echo "README.md has ${#commands[@]} commands below \"Two commands\", not two" >&2; exit 1; }
failed=0
for command in "${commands[@]}"; do
    echo "== $command"
    status=0
    time inside "cd /root/flowspace && $command" </dev/null || status=$?
    echo "== $command: exit code $status"
    [ "$status" -eq 0 ] || failed=1
done
exit "$failed"
