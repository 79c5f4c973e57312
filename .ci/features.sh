#!/usr/bin/env bash
# Checks the root package with each combination of its features. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
features=(cli serve tokenizer download)
# Not RUSTFLAGS: another value of it would compile the dependencies once more.
for ((bits = 0; bits < 1 << ${#features[@]}; bits++)); do
  chosen=()
  for at in "${!features[@]}"; do
    (((bits >> at & 1) == 0)) || chosen+=("${features[at]}")
  done
  list="$(IFS=,; echo "${chosen[*]-}")"
  echo "features: ${list:-none}"
  CARGO_BUILD_WARNINGS=deny cargo check --locked --quiet -p torch2carton --no-default-features --features "$list"
done
