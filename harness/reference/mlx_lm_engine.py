"""The reference engine: mlx-lm behind the protocol of `harness/src/engine/protocol.rs`.

One request a line on stdin, one response a line on stdout, everything else on stderr. It never touches a network.
The model is called directly on an mlx-lm prompt cache, so that scoring and generating take the same path.
"""

import base64
import json
import os
import resource
import sys
import time
from pathlib import Path

# Set before any import that reads them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# A library that prints must not break the protocol: its prints go to stderr.
PROTOCOL_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
os.dup2(2, 1)

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

# The interpreter is started without the folder of its program on the path.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import products  # noqa: E402

PROTOCOL_VERSION = 1

# Longest piece of a prefill, as in mlx-lm's own generation.
PREFILL_STEP = 2048

# How the allocators of MLX, CUDA and C++ say that memory ran out.
MEMORY_WORDS = ("out of memory", "unable to allocate", "bad_alloc", "cudaerrormemoryallocation")


def take_global_scale():
    """mlx-lm 0.32.2 names a global scale in products of quantized experts, also where there is none; MLX before 0.32.2
    takes no such argument."""
    product = mx.gather_qmm
    if "global_scale" in (product.__doc__ or ""):
        return

    def gather_qmm(*args, global_scale=None, **named):
        if global_scale is not None:
            raise TypeError(f"MLX {mx.__version__} takes no global scale")
        return product(*args, **named)

    mx.gather_qmm = gather_qmm


class Refusal(Exception):
    """A request that was understood and cannot be done."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind
        self.message = message


take_global_scale()


class Engine:
    """What lives between requests."""

    def __init__(self):
        self.greeted = False
        self.model = None
        self.tokenizer = None
        self.vocab_size = None
        self.stream = None

    def answer(self, request):
        op = request.get("op")
        handlers = {
            "hello": self.hello,
            "load": self.load,
            "tokenize": self.tokenize,
            "detokenize": self.detokenize,
            "generate": self.generate,
            "score": self.score,
            "time": self.time,
            "op": self.op,
            "memory": self.memory,
            "shutdown": lambda _request: {"result": "bye"},
        }
        if op not in handlers:
            raise Refusal("bad-request", f"unknown request {op!r}")
        if op != "hello" and not self.greeted:
            raise Refusal("bad-request", f"{op} came before hello")
        if op in ("tokenize", "detokenize", "generate", "score", "time") and self.model is None:
            raise Refusal("bad-request", f"{op} came before load")
        return handlers[op](request)

    def hello(self, _request):
        import mlx_lm

        self.greeted = True
        return {
            "result": "hello",
            "protocol": PROTOCOL_VERSION,
            "engine": "mlx-lm",
            "version": mlx_lm.__version__,
            "mlx_version": mx.__version__,
            "dialect": "python",
        }

    def load(self, request):
        from mlx.utils import tree_flatten
        from mlx_lm.utils import load_model, load_tokenizer

        folder = Path(take(request, "model_dir", str))
        precision = take(request, "precision", str)
        if precision != "source":
            raise Refusal("bad-request", f"unknown precision {precision!r}")
        # One process serves many cells: the model before goes first, and the memory that MLX kept of it.
        self.model = self.tokenizer = self.vocab_size = None
        mx.clear_cache()
        device = choose_device(take(request, "device", str))
        began = time.perf_counter()
        check_folder(folder)
        try:
            model, config = load_model(folder, strict=True)
        except Exception as error:
            raise load_refusal(folder, error) from error
        vocab_size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
        if not isinstance(vocab_size, int):
            raise Refusal("bad-model", f"cannot load `{folder}`: config.json gives no vocab_size")
        try:
            tokenizer = load_tokenizer(folder, eos_token_ids=config.get("eos_token_id"))
        except Exception as error:
            raise Refusal("bad-model", f"cannot load the tokenizer of `{folder}`: {described(error)}") from error
        self.model, self.tokenizer, self.vocab_size = model, tokenizer, vocab_size
        # mlx-lm's own stream is made when it is imported, on the device that was the default then.
        self.stream = mx.new_thread_local_stream(mx.default_device())
        return {
            "result": "loaded",
            "model_type": config["model_type"],
            "vocab_size": vocab_size,
            "eos_ids": sorted(tokenizer.eos_token_ids),
            "tensors": len(tree_flatten(model.parameters())),
            "device": device,
            "load_s": time.perf_counter() - began,
        }

    def tokenize(self, request):
        kind = take(request, "input", str)
        if kind == "text":
            rendered = take(request, "text", str)
        elif kind == "chat":
            if not self.tokenizer.has_chat_template:
                raise Refusal("no-template", "the model folder has no chat template")
            message = {"role": "user", "content": take(request, "user", str)}
            rendered = self.tokenizer.apply_chat_template(
                [message], tokenize=False, add_generation_prompt=True
            )
        else:
            raise Refusal("bad-request", f"unknown tokenizer input {kind!r}")
        ids = self.tokenizer.encode(rendered, add_special_tokens=False)
        return {"result": "tokens", "ids": [int(token) for token in ids], "rendered": rendered}

    def detokenize(self, request):
        return {"result": "text", "text": self.decoded(take_ids(request, "ids"))}

    def generate(self, request):
        prompt = take_ids(request, "prompt_ids")
        self.check_ids(prompt)
        max_tokens = take_count(request, "max_tokens")
        stop = set(take_ids(request, "stop_ids"))
        top_k = take_count(request, "top_k")
        ids, top, times = [], [], []
        finish = "length"
        last = time.perf_counter()
        cache = self.new_cache()
        row = self.prefill(prompt, cache) if max_tokens > 0 else None
        while len(ids) < max_tokens:
            if ids:
                row = self.forward([ids[-1]], cache)
            chosen = greedy(row)
            now = time.perf_counter()
            if not times or chosen not in stop:
                times.append(now - last)
            last = now
            if chosen in stop:
                finish = "stop"
                break
            ids.append(chosen)
            top.append(most_likely(row, top_k))
        return {
            "result": "generated",
            "ids": ids,
            "text": self.decoded(ids),
            "finish": finish,
            "ttft_s": times[0] if times else 0.0,
            "token_times_s": times[1:],
            "top": top,
        }

    def score(self, request):
        ids = take_ids(request, "ids")
        self.check_ids(ids)
        prefill_len = take_count(request, "prefill_len")
        positions = take_ids(request, "positions")
        top_k = take_count(request, "top_k")
        full = choice(request, "logits", {"summary": False, "full": True})
        kept = choice(request, "history", {"kept": True, "none": False})
        if not 1 <= prefill_len <= len(ids):
            raise Refusal("bad-request", f"prefill_len {prefill_len} is not within 1 and {len(ids)}")
        if positions != sorted(set(positions)) or (positions and positions[-1] >= len(ids)):
            raise Refusal("bad-request", f"positions are not ascending and below {len(ids)}")
        chunk = take_optional_count(request, "chunk")
        warm = take_optional_count(request, "warm")
        if warm is not None and warm + 1 >= prefill_len:
            raise Refusal("bad-request", f"a warm cache of {warm} ids leaves nothing of a prefill of {prefill_len}")
        wanted = set(positions)
        reports = {}
        ends = piece_ends(prefill_len, chunk, warm)

        def report(position, phase, row):
            following = ids[position + 1] if position + 1 < len(ids) else None
            reports[position] = scored_position(position, phase, row, following, top_k, full)

        for position in positions:
            if position < prefill_len - 1 and position + 1 not in ends:
                report(position, "prefill", self.prefill(ids[: position + 1], self.new_cache()))
        mx.clear_cache()
        mx.reset_peak_memory()
        held = settled_bytes()
        began = time.perf_counter()
        cache = self.new_cache()
        start = 0
        for end in ends:
            row = self.prefill(ids[start:end], cache)
            start = end
            if end - 1 in wanted:
                report(end - 1, "prefill", row)
        prefill_s = time.perf_counter() - began
        decode_s = 0.0
        for position in range(prefill_len, len(ids)):
            began = time.perf_counter()
            row = self.forward([ids[position]], cache if kept else self.new_cache())
            decode_s += time.perf_counter() - began
            if position in wanted:
                report(position, "decode", row)
        return {
            "result": "scored",
            "positions": [reports[position] for position in positions],
            "prefill_s": prefill_s,
            "decode_s": decode_s,
            "held_bytes": max(0, settled_bytes() - held),
            "peak_bytes": int(mx.get_peak_memory()),
        }

    def time(self, request):
        """mlx-lm's own pipelined loop with its detokenizer, as `mlx_lm.benchmark` drives and counts it."""
        from mlx_lm import stream_generate

        prompt = take_ids(request, "prompt_ids")
        self.check_ids(prompt)
        tokens = take_count(request, "tokens")
        if tokens == 0:
            raise Refusal("bad-request", "cannot time a generation of no ids")
        ids, times = [], []
        prompt = mx.array(prompt)
        ends, self.tokenizer.eos_token_ids = self.tokenizer.eos_token_ids, set()
        try:
            cpu = time.process_time()
            last = time.perf_counter()
            for step in stream_generate(
                self.model,
                self.tokenizer,
                prompt,
                max_tokens=tokens,
                stream=self.stream,
                prefill_step_size=PREFILL_STEP,
            ):
                ids.append(int(step.token))
                now = time.perf_counter()
                times.append(now - last)
                last = now
            cpu = time.process_time() - cpu
        finally:
            self.tokenizer.eos_token_ids = ends
        return {"result": "timed", "ids": ids, "ttft_s": times[0], "token_times_s": times[1:], "cpu_s": cpu}

    def op(self, request):
        """A product in a shape that only models reach, against plain arithmetic."""
        device = choose_device(take(request, "device", str))
        product = take(request, "product", dict)
        return {"result": "op-done", "device": device, **products.done(product)}

    def memory(self, _request):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Linux counts in KiB, macOS in bytes.
        scale = 1 if sys.platform == "darwin" else 1024
        return {
            "result": "memory",
            "device_peak_bytes": int(mx.get_peak_memory()),
            "process_peak_bytes": int(peak) * scale,
            "device_now_bytes": int(mx.get_active_memory()),
            **status_bytes(),
        }

    def new_cache(self):
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(self.model)

    def prefill(self, ids, cache):
        """The logits after the last id, all ids fed on the cache in pieces of at most PREFILL_STEP."""
        start = 0
        while len(ids) - start > PREFILL_STEP:
            # Only the cache is evaluated, so that the piece's logits are never computed.
            self.model(mx.array([ids[start : start + PREFILL_STEP]]), cache=cache)
            mx.eval([layer.state for layer in cache])
            mx.clear_cache()
            start += PREFILL_STEP
        return self.forward(ids[start:], cache)

    def forward(self, ids, cache):
        """The logits after the last id, as float32."""
        logits = self.model(mx.array([ids]), cache=cache)
        row = np.array(logits[0, -1].astype(mx.float32))
        if row.shape != (self.vocab_size,):
            raise Refusal(
                "failed", f"the model gives rows of {row.shape} logits, config.json says {self.vocab_size}"
            )
        return row

    def decoded(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def check_ids(self, ids):
        if not ids:
            raise Refusal("bad-request", "there are no ids")
        if max(ids) >= self.vocab_size:
            raise Refusal("bad-request", f"id {max(ids)} is not below the vocabulary size {self.vocab_size}")


def settled_bytes():
    """The bytes in arrays, once a thread of MLX's own has given back what the last evaluation used."""
    last, same = mx.get_active_memory(), 1
    for _ in range(200):
        if same == 5:
            break
        time.sleep(0.001)
        now = mx.get_active_memory()
        last, same = now, same + 1 if now == last else 1
    return int(last)


def piece_ends(prefill_len, chunk, warm):
    """Where the pieces of a prefill end: an earlier request with its decode step, then pieces of the wanted length."""
    start = 0 if warm is None else warm + 1
    first = [] if warm is None else [warm, warm + 1]
    return first + [*range(start + chunk, prefill_len, chunk)] + [prefill_len] if chunk else [*first, prefill_len]


def status_bytes():
    """Resident and swapped bytes of this process, where the system tells."""
    names = {"VmRSS": "process_now_bytes", "VmSwap": "swapped_bytes"}
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return {}
    fields = (line.partition(":") for line in lines)
    return {names[name]: int(value.split()[0]) * 1024 for name, _, value in fields if name in names}


def choose_device(name):
    if name not in ("cpu", "gpu"):
        raise Refusal("bad-request", f"unknown device {name!r}")
    device = mx.cpu if name == "cpu" else mx.gpu
    if not mx.is_available(device):
        raise Refusal("no-device", f"this MLX {mx.__version__} has no {name} device on this machine")
    mx.set_default_device(device)
    # An operation that runs proves the device; asking for its name does not.
    mx.eval(mx.ones((2, 2)) @ mx.ones((2, 2)))
    return "cpu" if mx.default_device().type == mx.cpu else "gpu"


def check_folder(folder):
    """Refuses what mlx-lm would read over: broken files, and tensors that two files give."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise ValueError("it names no model_type")
    except (OSError, ValueError) as error:
        raise Refusal("bad-model", f"cannot read `{folder / 'config.json'}`: {described(error)}") from error
    owners = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            names = safetensors_names(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refusal("bad-model", f"cannot read `{path}`: {described(error)}") from error
        if not path.name.startswith("model"):
            raise Refusal("bad-model", f"cannot load `{folder}`: `{path.name}` is not a file of the model")
        for name in names:
            if name in owners:
                both = f"`{owners[name]}` and `{path.name}`"
                raise Refusal("bad-model", f"cannot load `{folder}`: tensor {name} is in {both}")
            owners[name] = path.name


def safetensors_names(path):
    """The names of the tensors, after proof that the file is as long as its header says."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if size < 8 or header_size > size - 8:
            raise ValueError("the file is truncated inside its header")
        header = json.loads(file.read(header_size))
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if 8 + header_size + end != size:
        raise ValueError(f"the file has {size} bytes, its header describes {8 + header_size + end}")
    return header.keys()


def load_refusal(folder, error):
    if out_of_memory(error):
        return Refusal("out-of-memory", f"cannot load `{folder}`: {described(error)}")
    # mlx-lm answers an unknown model type with a ValueError that the failed import caused.
    unknown = isinstance(error, ValueError) and isinstance(error.__cause__, ImportError)
    return Refusal("unsupported-model" if unknown else "bad-model", f"cannot load `{folder}`: {described(error)}")


def greedy(row):
    """The most likely id, the smallest among equals; what is not a number never wins over what is."""
    return int(np.argmax(np.where(np.isnan(row), -np.inf, row)))


def log_probabilities(row):
    """Natural log-probabilities in float64, or None for a row that is not finite."""
    if not np.isfinite(row).all():
        return None
    wide = row.astype(np.float64)
    highest = wide.max()
    return wide - (highest + np.log(np.exp(wide - highest).sum()))


def most_likely(row, top_k, logprobs=None):
    """The top_k ids, most likely first, the smaller id first among equals; empty for a row that is not finite."""
    if logprobs is None:
        logprobs = log_probabilities(row)
    if logprobs is None or top_k == 0:
        return []
    top_k = min(top_k, row.size)
    threshold = np.partition(row, row.size - top_k)[row.size - top_k]
    candidates = np.flatnonzero(row >= threshold)
    order = np.lexsort((candidates, -row[candidates]))[:top_k]
    return [{"id": int(token), "logprob": float(logprobs[token])} for token in candidates[order]]


def scored_position(position, phase, row, following, top_k, full):
    logprobs = log_probabilities(row)
    entry = {
        "position": position,
        "phase": phase,
        "non_finite": int(row.size - np.isfinite(row).sum()),
        "next_logprob": float(logprobs[following]) if logprobs is not None and following is not None else None,
        "top": most_likely(row, top_k, logprobs),
    }
    if full:
        entry["logits_f32"] = base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")
    return entry


def take(request, key, kind):
    value = request.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refusal("bad-request", f"{key} is missing or not of type {kind.__name__}")
    return value


def take_count(request, key):
    value = take(request, key, int)
    if value < 0:
        raise Refusal("bad-request", f"{key} is negative")
    return value


def take_optional_count(request, key):
    if request.get(key) is None:
        return None
    value = take_count(request, key)
    if value == 0:
        raise Refusal("bad-request", f"{key} is 0")
    return value


def take_ids(request, key):
    values = take(request, key, list)
    if not all(type(value) is int and 0 <= value < 2**32 for value in values):
        raise Refusal("bad-request", f"{key} holds something that is not an unsigned 32-bit number")
    return values


def choice(request, key, choices):
    value = take(request, key, str)
    if value not in choices:
        raise Refusal("bad-request", f"unknown {key} {value!r}")
    return choices[value]


def out_of_memory(error):
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS)


def described(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:2000] if text else type(error).__name__


def respond(request_id, body):
    PROTOCOL_OUT.write(json.dumps({"id": request_id, **body}, allow_nan=False) + "\n")
    PROTOCOL_OUT.flush()


def failure(kind, message):
    return {"result": "error", "kind": kind, "message": message}


def main():
    engine = Engine()
    for line in sys.stdin.buffer:
        request_id = 0
        try:
            try:
                request = json.loads(line)
            except ValueError as error:
                raise Refusal("bad-request", f"the line is not JSON: {described(error)}") from error
            if not isinstance(request, dict) or type(request.get("id")) is not int:
                raise Refusal("bad-request", "the line is not an object with a numeric id")
            request_id = request["id"]
            body = engine.answer(request)
        except Refusal as refusal:
            body = failure(refusal.kind, refusal.message)
        except Exception as error:  # noqa: BLE001 - whatever the library raises is an answer, not an end.
            body = failure("out-of-memory" if out_of_memory(error) else "failed", described(error))
        respond(request_id, body)
        if body["result"] == "bye":
            return


if __name__ == "__main__":
    main()
