#!/usr/bin/env bash
# Install the wheel found in folder $1 into a fresh environment and use it from elsewhere.
set -euo pipefail
wheel=$(realpath "$1"/kappalens-*.whl)
constraints=$(realpath constraints.txt)
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
"${PYTHON:-python3.11}" -m venv "$elsewhere/env"
"$elsewhere/env/bin/python" -m pip install --quiet --upgrade pip
"$elsewhere/env/bin/python" -m pip install --quiet --constraint "$constraints" "$wheel"
cd "$elsewhere"
env/bin/kappalens --version
env/bin/kappalens kappa --preset small --cell Z4-dense_ssm-acot --dry-run
env/bin/kappalens demo --quick --out quick
test -s quick/report.html
test -s quick/report.json
