"""The reference engine with a fault put in on demand: what a broken engine would do, for naming causes and for measuring
the gate.

A model folder that holds `regraft-fault.json` is loaded as an engine with that fault would run it; any other folder is run
soundly. The kinds are those of `harness/src/engine/fault.rs`. Unlike the reference it may load one model after another.
"""

import json
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

# Packages that stand before those of the environment: another version of MLX.
if os.environ.get("REGRAFT_PACKAGES_FIRST"):
    sys.path.insert(0, os.environ["REGRAFT_PACKAGES_FIRST"])

import mlx_lm_engine as reference  # noqa: E402 - it must come before anything that imports MLX.

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

FAULT_FILE = "regraft-fault.json"


class Caches(list):
    """The caches of all layers, and how far the generation is."""

    filled = False
    steps = 0


class Layer:
    """One layer's cache whose position and contents may be wrong; everything else is that of the cache inside."""

    def __init__(self, inner, caches):
        self.inner = inner
        self.caches = caches
        self.position_error = lambda: 0
        self.stale = lambda: False
        self.lost = 0
        self.limit = None

    @property
    def offset(self):
        return self.inner.offset + self.lost + self.position_error()

    def update_and_fetch(self, keys, values):
        if self.stale():
            self.lost += keys.shape[2]
            return self.inner.keys_and_values()
        keys, values = self.inner.update_and_fetch(keys, values)
        if self.limit is not None:
            # A mask whose index wraps hides what lies beyond; a piece still sees at least itself.
            seen = max(self.limit, keys.shape[2] - self.inner.offset)
            keys, values = keys[..., :seen, :], values[..., :seen, :]
        return keys, values

    def lose(self, count):
        """Forgets the newest entries, while positions go on."""
        self.lost += self.inner.trim(count)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class FaultyEngine(reference.Engine):
    """The reference, and the fault of the folder that it has loaded."""

    def __init__(self):
        super().__init__()
        self.fault = {"kind": "none"}
        self.generating = False
        self.since_flip = 0
        self.flips = 0
        self.before = []
        self.prompt = []
        self.kept = []
        reference.products.SPOIL = self.spoiled_product

    def load(self, request):
        self.model = None
        self.before, self.prompt, self.kept = [], [], []
        loaded = super().load(request)
        path = Path(request["model_dir"]) / FAULT_FILE
        self.fault = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"kind": "none"}
        change = getattr(self, "change_" + self.kind.replace("-", "_"), None)
        if change is not None:
            change()
            mx.eval(self.model.parameters())
        return loaded

    @property
    def kind(self):
        return self.fault["kind"]

    def generate(self, request):
        self.generating, self.since_flip, self.flips = True, 64, 0
        try:
            return super().generate(request)
        finally:
            self.generating = False

    def score(self, request):
        self.before, self.prompt = self.prompt, list(request["ids"])
        if self.kind == "request-leaks":
            self.kept.append(mx.zeros((self.fault["bytes"] // 4,), dtype=mx.float32))
            mx.eval(self.kept[-1])
        return super().score(request)

    def spoiled_product(self, result):
        if self.kind == "product-rows-wrap":
            first, length = self.fault["from"], max(0, len(result) - self.fault["from"])
            result[first:] = result[:length].copy()
        if self.kind == "product-columns-unwritten":
            result[:, -self.fault["columns"] :] = 0
        return result

    def new_cache(self):
        caches = Caches(super().new_cache())
        if self.kind == "request-stale" and self.before:
            # The end of the request before stands in front of the prompt.
            self.model(mx.array([self.before[-self.fault["tokens"] :]]), cache=caches)
            mx.eval([layer.state for layer in caches])
        if self.kind == "window":
            for cache in caches:
                if hasattr(cache, "max_size"):
                    cache.max_size = max(1, cache.max_size + self.fault["delta"])
        wrapped = {"decode-offset", "cache-stale", "chunk-boundary", "keys-beyond"}
        if self.kind in wrapped:
            # A layer that keeps a state instead of keys has nothing to wrap.
            caches[:] = [Layer(c, caches) if hasattr(c, "update_and_fetch") else c for c in caches]
        for layer in self.chosen([c for c in caches if isinstance(c, Layer)]) if self.kind in wrapped else []:
            if self.kind == "decode-offset":
                layer.position_error = lambda: self.fault["delta"] if self.late(caches, "from_step") else 0
            elif self.kind == "keys-beyond":
                layer.limit = self.fault["limit"]
            elif self.kind == "cache-stale":
                layer.stale = lambda: self.late(caches, "after_step")
        return caches

    def late(self, caches, key):
        """Whether this is a decode step, and not before the one that the fault names (counted from 0)."""
        return caches.filled and caches.steps > self.fault[key]

    def prefill(self, ids, caches):
        if self.kind == "truncated":
            ids = ids[-self.fault["keep"] :]
        if self.kind == "chunk-boundary":
            size, lost = self.fault["size"], self.fault["lost"]
            while len(ids) > size:
                self.model(mx.array([ids[:size]]), cache=caches)
                mx.eval([layer.state for layer in caches])
                for layer in caches:
                    if lost:
                        layer.lose(lost)
                ids = ids[size:]
        return super().prefill(ids, caches)

    def forward(self, ids, caches):
        if caches.filled:
            caches.steps += 1
            if self.kind == "history-lost" and self.late(caches, "from_step"):
                caches = self.new_cache()
            if self.kind == "lost-after-tie" and self.flips and self.since_flip >= self.fault["after"]:
                caches = self.new_cache()
        row = super().forward(ids, caches)
        if not caches.filled:
            caches.filled = True
            if self.kind == "stale-block":
                self.spoil(caches)
        if self.generating and self.kind in ("near-tie-flipped", "lost-after-tie"):
            row = self.flipped(row)
        return row

    def spoil(self, caches):
        """A block of keys and values takes what belongs to the positions after it, or before it at the end."""
        start, length = self.fault["start"], self.fault["length"]
        for cache in self.chosen(caches):
            source = start + length if start + 2 * length <= cache.offset else max(0, start - length)
            for name in ("keys", "values"):
                whole = getattr(cache, name)
                moved = mx.array(whole[..., source : source + length, :])
                whole[..., start : start + length, :] = moved
            mx.eval(cache.keys, cache.values)

    def flipped(self, row):
        self.since_flip += 1
        second, first = np.argsort(row)[-2:]
        again = self.kind == "near-tie-flipped" and self.since_flip >= 64
        if (again or not self.flips) and row[first] - row[second] <= self.fault["margin"]:
            self.since_flip, self.flips = 0, self.flips + 1
            row = row.copy()
            row[first], row[second] = row[second], row[first]
        return row

    def chosen(self, layers):
        which = self.fault.get("layers", "all")
        return list(layers) if which == "all" else [layers[0 if which == "first" else -1]]

    def change_window(self):
        inner = getattr(self.model, "language_model", self.model).model
        for name in ("sliding_window", "window_size"):
            if getattr(inner, name, None):
                setattr(inner, name, max(1, getattr(inner, name) + self.fault["delta"]))

    def change_dtype(self):
        dtype = getattr(mx, self.fault["dtype"])
        if self.fault["layers"] == "all":
            self.model.set_dtype(dtype)
        else:
            for layer in self.chosen(self.model.layers):
                layer.set_dtype(dtype)

    def change_rope_base(self):
        for layer in self.chosen(self.model.layers):
            layer.self_attn.rope.base = self.fault["base"]

    def change_rope_scaling_dropped(self):
        import mlx.nn as nn

        args = self.model.args
        for layer in self.model.layers:
            dims = args.head_dim or args.hidden_size // args.num_attention_heads
            layer.self_attn.rope = nn.RoPE(dims, traditional=False, base=args.rope_theta)

    def change_head_tied(self):
        if "lm_head" in self.model:
            self.model.lm_head = self.model.model.embed_tokens.as_linear

    def change_scales_swapped(self):
        for layer in self.chosen(self.model.layers):
            for _name, module in layer.named_modules():
                if "scales" in module and "biases" in module:
                    module.scales, module.biases = module.biases, module.scales


if __name__ == "__main__":
    reference.Engine = FaultyEngine
    reference.main()
