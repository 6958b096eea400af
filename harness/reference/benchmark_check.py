"""Compares the reference engine's figures with mlx-lm's own: of the same generation, and with `mlx_lm.benchmark` by turns.

`PYTHON harness/reference/benchmark_check.py MODEL_DIR [--prompt 128 …] [--tokens 64] [--rounds 6] [--trials 3]
[--seconds S] [--device cpu] [--apart]` with the interpreter and the variables of the reference's environment, as the
command line of an mlx-lm process in a report's log shows them.

*Same generation*: every id that the engine times comes with the rates that mlx-lm counts for it, which are what
`mlx_lm.benchmark` prints, so that two ways of counting are compared and the machine's noise is in both. *By turns*: a round is
one turn of the engine and two of `mlx_lm.benchmark`, each with a warm-up of its own, in an order that changes, all on one
loaded model in one process; this would show work that only one of the two does. With `--apart` each turn is a process of its
own, and nothing is counted twice. With `--seconds` each prompt length ends after the round, from the fourth on, in which that
much time has passed.

Ratios are medians, each with the range that holds the true median in 90 of 100 cases (order statistics). Exit code 0: every
range of the same generation is within 3 %, and no range by turns is beyond 3 % (with `--apart`: every range by turns is within
3 %). 1: a range is wholly beyond 3 %, and where it is one by turns, the benchmark agrees with itself. 4: too noisy to say.
"""

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 0.03
CONFIDENCE = 0.9
ENGINE = Path(__file__).with_name("mlx_lm_engine.py")
RATES = ("prefill", "decode")
ARMS = ("engine", "benchmark", "benchmark again")


def requests_of(options, prompt, vocab_size):
    """The engine's requests of one turn, the warm-up first."""
    ids = [(i * 37 + 11) % vocab_size for i in range(prompt)]
    return [{"op": "time", "prompt_ids": ids, "tokens": options.tokens}] * (options.trials + 1)


def rates_of(options, prompt, answers):
    """As mlx-lm counts: all tokens over the time after the first. The first answer is the warm-up's."""
    prefill = [prompt / answer["ttft_s"] for answer in answers[1:]]
    decode = [options.tokens / sum(answer["token_times_s"]) for answer in answers[1:]]
    return statistics.median(prefill), statistics.median(decode)


def arguments_of(options, prompt):
    return [
        "--model", str(options.model_dir), "--prompt-tokens", str(prompt), "--generation-tokens", str(options.tokens),
        "--num-trials", str(options.trials),
    ]


def printed_rates(text):
    """The medians of the trials that `mlx_lm.benchmark` printed."""
    trials = re.findall(r"^Trial \d+:\s+prompt_tps=([0-9.]+), generation_tps=([0-9.]+)", text, re.MULTILINE)
    if not trials:
        raise SystemExit(f"mlx_lm.benchmark printed no trials:\n{text}")
    return tuple(statistics.median(float(trial[at]) for trial in trials) for at in range(2))


class Together:
    """Both in this process, on one loaded model."""

    def __init__(self, options):
        # Importing the engine takes stdout for the protocol.
        sys.path.insert(0, str(ENGINE.parent))
        import mlx_lm_engine

        # mlx-lm makes its stream when it is imported, on the device that is the default then.
        mlx_lm_engine.choose_device(options.device)
        self.options, self.out = options, mlx_lm_engine.PROTOCOL_OUT
        self.engine = mlx_lm_engine.Engine()
        self.engine.answer({"op": "hello"})
        self.loaded = self.engine.answer(
            {"op": "load", "model_dir": str(options.model_dir), "precision": "source", "device": options.device}
        )
        import mlx_lm
        from mlx_lm import benchmark
        from mlx_lm.utils import load_tokenizer

        config = json.loads((options.model_dir / "config.json").read_text(encoding="utf-8"))
        tokenizer = load_tokenizer(options.model_dir, eos_token_ids=config.get("eos_token_id"))
        benchmark.load = lambda *_args, **_kwargs: (self.engine.model, tokenizer, config)
        self.benchmark = benchmark
        # Ratios of the engine's rates to those that mlx-lm gives with the last id of the same generation.
        self.same = {rate: [] for rate in RATES}
        generations = mlx_lm.stream_generate

        def remembered(*arguments, **named):
            for step in generations(*arguments, **named):
                self.last = step
                yield step

        mlx_lm.stream_generate = remembered

    def run(self, arm, prompt):
        if arm == "engine":
            return self.by_engine(prompt)
        printed, arguments = io.StringIO(), sys.argv
        sys.argv = ["mlx_lm.benchmark", *arguments_of(self.options, prompt)]
        try:
            with contextlib.redirect_stdout(printed):
                self.benchmark.main()
        finally:
            sys.argv = arguments
        return printed_rates(printed.getvalue())

    def by_engine(self, prompt):
        answers = []
        for request in requests_of(self.options, prompt, self.loaded["vocab_size"]):
            answers.append(self.engine.answer(request))
            if len(answers) > 1:
                own = rates_of(self.options, prompt, [None, answers[-1]])
                for rate, ours, theirs in zip(RATES, own, (self.last.prompt_tps, self.last.generation_tps), strict=True):
                    self.same[rate].append(ours / theirs)
        return rates_of(self.options, prompt, answers)


class Apart:
    """A process a turn."""

    def __init__(self, options):
        self.options, self.out, self.same = options, sys.stdout, {}

    def run(self, arm, prompt):
        return self.by_engine(prompt) if arm == "engine" else self.by_benchmark(prompt)

    def by_engine(self, prompt):
        process = subprocess.Popen(
            [sys.executable, str(ENGINE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )

        def ask(request):
            process.stdin.write(json.dumps({"id": 1, **request}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if answer["result"] == "error":
                raise SystemExit(f"the engine refused {request['op']}: {answer['message']}")
            return answer

        ask({"op": "hello"})
        place = {"model_dir": str(self.options.model_dir), "precision": "source", "device": self.options.device}
        vocab_size = ask({"op": "load", **place})["vocab_size"]
        answers = [ask(request) for request in requests_of(self.options, prompt, vocab_size)]
        ask({"op": "shutdown"})
        process.wait()
        return rates_of(self.options, prompt, answers)

    def by_benchmark(self, prompt):
        # The device is chosen before mlx-lm is imported: the stream it generates on is made then.
        code = "import sys, mlx.core as mx; mx.set_default_device(getattr(mx, sys.argv.pop(1))); " \
            "from mlx_lm.benchmark import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, self.options.device, *arguments_of(self.options, prompt)],
            check=False, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        if done.returncode != 0:
            raise SystemExit(f"mlx_lm.benchmark ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        return printed_rates(done.stdout)


def middle(ratios):
    """Median, and the order statistics that hold the true median with CONFIDENCE or more; the extremes where too few."""
    ordered, n = sorted(ratios), len(ratios)
    cut = 0
    while 1 - 2 * sum(math.comb(n, i) for i in range(cut + 2)) / 2**n >= CONFIDENCE:
        cut += 1
    return statistics.median(ordered), ordered[cut], ordered[n - 1 - cut]


def verdict(rounds, same):
    """Exit code of one prompt length and rate: 0, 1 or 4, with what the table shows."""
    engine = middle([of["engine"] / math.sqrt(of["benchmark"] * of["benchmark again"]) for of in rounds])
    itself = middle([of["benchmark again"] / of["benchmark"] for of in rounds])
    counted = middle(same) if same else None

    def within(ratio):
        return 1 - LIMIT <= ratio[1] and ratio[2] <= 1 + LIMIT

    def beyond(ratio):
        return ratio[2] < 1 - LIMIT or ratio[1] > 1 + LIMIT

    if (counted and beyond(counted)) or (beyond(engine) and within(itself)):
        return 1, "**differs**", counted, engine, itself
    if within(engine) and within(itself) and (not counted or within(counted)):
        return 0, "agrees", counted, engine, itself
    if counted and within(counted) and not beyond(engine):
        return 0, "agrees; by turns too noisy for 3 %", counted, engine, itself
    return 4, "too noisy to say", counted, engine, itself


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=lambda text: Path(text).resolve())
    parser.add_argument("--prompt", type=int, nargs="+", default=[128])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    counts = [*options.prompt, options.tokens - 1, options.rounds, options.trials]
    if min(counts) < 1 or options.seconds <= 0:
        parser.error("counts must be at least 1, --tokens at least 2, and --seconds above 0")
    if not (options.model_dir / "config.json").is_file():
        parser.error(f"{options.model_dir} holds no config.json: it is no model folder")
    if importlib.util.find_spec("mlx_lm") is None:
        parser.error(f"{sys.executable} has no mlx_lm: take the interpreter of the reference's environment")
    orders = list(itertools.permutations(ARMS))
    turns = (Apart if options.apart else Together)(options)

    def say(line):
        print(line, file=turns.out, flush=True)

    worst, table = 0, []
    for prompt in options.prompt:
        rounds, began = [], time.monotonic()
        for ratios in turns.same.values():
            ratios.clear()
        for number in range(options.rounds):
            # Each order is followed by its reverse, so that few rounds are balanced too.
            order = orders[number // 2 % len(orders)]
            taken = {arm: turns.run(arm, prompt) for arm in (order if number % 2 == 0 else reversed(order))}
            rounds.append(taken)
            shown = "; ".join(
                f"{rate} " + " ".join(f"{arm} {taken[arm][at]:.2f}" for arm in ARMS) for at, rate in enumerate(RATES)
            )
            say(f"prompt {prompt}, round {number + 1}: {shown}")
            if number >= 3 and time.monotonic() - began > options.seconds:
                break
        for at, rate in enumerate(RATES):
            figures = [{arm: taken[arm][at] for arm in ARMS} for taken in rounds]
            code, says, *ratios = verdict(figures, turns.same.get(rate))
            worst = max(worst, code)
            medians = " | ".join(f"{statistics.median(of[arm] for of in figures):.2f}" for arm in ARMS)
            ranges = " | ".join("–" if r is None else f"{r[0]:.3f} ({r[1]:.3f} to {r[2]:.3f})" for r in ratios)
            table.append(f"| {prompt} | {rate} | {medians} | {ranges} | {says} |")
    say(
        "\n| prompt | rate, tok/s | engine | mlx_lm.benchmark | again | same generation, engine over mlx-lm "
        "| by turns, engine over benchmark | benchmark over itself | |"
    )
    say("|---|---|---|---|---|---|---|---|---|")
    say("\n".join(table))
    return worst


if __name__ == "__main__":
    sys.exit(main())
