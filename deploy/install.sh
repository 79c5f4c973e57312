#!/bin/sh
# Installs torch2carton from the files of a release:
#
#   TORCH2CARTON_RELEASE=ADDRESS sh install.sh [FOLDER]
#
# ADDRESS is where the files of the release are, FOLDER where the program goes (default: ~/.local/bin). Nothing is installed if the
# checksum is another.
set -eu

version=@VERSION@
release="${TORCH2CARTON_RELEASE:?set it to the address of the files of the release}"
folder="${1:-$HOME/.local/bin}"

case "$(uname -s) $(uname -m)" in
  "Linux x86_64") target=x86_64-unknown-linux-musl ;;
  "Linux aarch64" | "Linux arm64") target=aarch64-unknown-linux-gnu ;;
  "Darwin arm64") target=aarch64-apple-darwin ;;
  "Darwin x86_64") target=x86_64-apple-darwin ;;
  *) echo "error: there is no program for $(uname -s) on $(uname -m); build it from source" >&2; exit 1 ;;
esac
name="torch2carton-$version-$target"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
fetch() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --output "$work/$1" "$release/$1"
  else
    wget --quiet --output-document="$work/$1" "$release/$1"
  fi || { echo "error: cannot fetch $release/$1" >&2; exit 1; }
}
fetch SHA256SUMS
fetch "$name.tar.gz"

expected="$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\.tar\.gz\$/\1/p" "$work/SHA256SUMS")"
if command -v sha256sum >/dev/null; then
  found="$(sha256sum <"$work/$name.tar.gz")"
else
  found="$(shasum -a 256 <"$work/$name.tar.gz")"
fi
found="${found%% *}"
if [ -z "$expected" ] || [ "$expected" != "$found" ]; then
  echo "error: $name.tar.gz has the SHA-256 $found, but SHA256SUMS says ${expected:-nothing about it}; nothing was installed" >&2
  exit 1
fi

tar -xzf "$work/$name.tar.gz" -C "$work"
mkdir -p "$folder"
# A rename, so that a program that is running keeps its file.
cp "$work/$name/torch2carton" "$folder/.torch2carton-new"
chmod 755 "$folder/.torch2carton-new"
mv -f "$folder/.torch2carton-new" "$folder/torch2carton"
echo "installed $folder/torch2carton"
case ":$PATH:" in
  *":$folder:"*) ;;
  *) echo "note: $folder is not in PATH" ;;
esac
