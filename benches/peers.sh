#!/bin/sh
# Times a rebase of 40 clean patches over 700 commits three ways on one repository, in turns and in one run: in memory by
# this crate, by `git replay`, and by `git rebase` in a work tree; beside them the forecast with 10 conflicts. The trees
# of the first two are compared. Usage: benches/peers.sh [rounds]
set -eu
cd "$(dirname "$0")/.."
exec cargo bench --quiet --package harness --bench rebase -- --in-turns "${1:-15}"
