"""Compares the reference engine's figures with mlx-lm's own benchmark, by turns in one session.

`PYTHON harness/reference/benchmark_check.py MODEL_DIR [--prompt 128] [--tokens 64] [--rounds 5] [--device cpu]` with the
interpreter of the reference's environment. Exit code 1 where a rate differs by more than 3 %.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

LIMIT = 0.03
TRIALS = 3
ENGINE = Path(__file__).with_name("mlx_lm_engine.py")


def by_engine(options):
    """Prefill and decode rates through the protocol, after one request that warms up."""
    process = subprocess.Popen(
        [sys.executable, str(ENGINE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )

    def ask(number, **request):
        process.stdin.write(json.dumps({"id": number, **request}) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if answer["result"] == "error":
            raise SystemExit(f"the engine refused {request['op']}: {answer['message']}")
        return answer

    ask(1, op="hello")
    loaded = ask(2, op="load", model_dir=str(options.model_dir.resolve()), precision="source", device=options.device)
    ids = [(i * 37 + 11) % loaded["vocab_size"] for i in range(options.prompt)]
    timed = [ask(3 + i, op="time", prompt_ids=ids, tokens=options.tokens) for i in range(TRIALS + 1)][1:]
    ask(9, op="shutdown")
    process.wait()
    prefill = statistics.fmean(options.prompt / run["ttft_s"] for run in timed)
    # mlx-lm counts all tokens over the time after the first; the same is done here.
    decode = statistics.fmean(options.tokens / sum(run["token_times_s"]) for run in timed)
    return prefill, decode


def by_benchmark(options):
    """The averages that `mlx_lm.benchmark` prints."""
    code = "import sys, mlx.core as mx; mx.set_default_device(getattr(mx, sys.argv.pop(1))); " \
        "from mlx_lm.benchmark import main; main()"
    done = subprocess.run(
        [
            sys.executable, "-c", code, options.device, "--model", str(options.model_dir), "--prompt-tokens",
            str(options.prompt), "--generation-tokens", str(options.tokens), "--num-trials", str(TRIALS),
        ],
        check=True, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    averages = next(line for line in done.stdout.splitlines() if line.startswith("Averages:"))
    found = dict(re.findall(r"(\w+)=([0-9.]+)", averages))
    return float(found["prompt_tps"]), float(found["generation_tps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    options = parser.parse_args()
    engine, benchmark = [], []
    for round_ in range(options.rounds):
        turns = [(engine, by_engine), (benchmark, by_benchmark)]
        for figures, measure in turns if round_ % 2 == 0 else reversed(turns):
            figures.append(measure(options))
    worst = 0.0
    print("| rate, tok/s | reference engine | mlx_lm.benchmark | ratio |")
    print("|---|---|---|---|")
    for index, name in enumerate(("prefill", "decode")):
        ours, theirs = (statistics.median(run[index] for run in runs) for runs in (engine, benchmark))
        worst = max(worst, abs(ours / theirs - 1))
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} |")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
