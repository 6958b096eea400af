#!/bin/sh
# Times a rebase of 40 clean patches over 700 commits three ways on one repository: in memory by this crate (median of
# criterion), by `git replay`, and by `git rebase`. Start-up of git counts in all three; the trees of the first two are
# compared. Usage: benches/peers.sh [rounds]
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-11}
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org

cargo bench --quiet --package harness --bench rebase -- --noplot >/dev/null
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
repository=$target/tmp/rebase-bench.git
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

median_ms() { # the median of lines of nanoseconds, in milliseconds
    sort -n | awk '{ at[NR] = $1 } END { printf "%.1f", at[int((NR + 1) / 2)] / 1e6 }'
}
criterion_ms() {
    sed 's/.*"median":{[^}]*}[^}]*"point_estimate":\([0-9.]*\).*/\1/' \
        "$target/criterion/rebase/$1/new/estimates.json" | median_ms
}
timed() { # the time that each of $rounds runs of a command takes, in nanoseconds
    round=0
    while [ "$round" -lt "$rounds" ]; do
        from=$(date +%s%N)
        "$@" >"$scratch/said" 2>&1
        to=$(date +%s%N)
        echo $((to - from))
        round=$((round + 1))
    done
}
rebase() {
    git -C "$scratch/work" checkout --quiet --detach clean
    git -C "$scratch/work" rebase --quiet --onto main base
}

replay=$(timed git --git-dir "$repository" replay --onto main base..clean | median_ms)
head=$(git --git-dir "$repository" replay --onto main base..clean | cut -d' ' -f3)
git --git-dir "$repository" log --reverse --format=%T "main..$head" >"$scratch/trees"
same=no
cmp -s "$scratch/trees" "$repository/trees" && same=yes
git clone --quiet --local --branch clean "$repository" "$scratch/work"
git -C "$scratch/work" branch --quiet main origin/main
git -C "$scratch/work" branch --quiet base origin/base
rebase_ms=$(timed rebase | median_ms)

echo "| 40 clean patches over 700 commits | ms |"
echo "|---|---|"
echo "| in memory | $(criterion_ms clean) |"
echo "| git replay | $replay |"
echo "| git rebase, checkout included | $rebase_ms |"
echo
echo "Same trees as git replay: $same. Forecast with 10 conflicts and their culprits: $(criterion_ms forecast) ms."
[ "$same" = yes ]
