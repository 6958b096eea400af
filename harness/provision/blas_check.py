"""Prints, as one JSON object, which file serves `cblas_sgemm` to libraries loaded from now on (null: none yet, MLX takes
its own), and the best time, in seconds, of a 512 x 512 x 512 float32 matrix product on the CPU within about a second."""

import ctypes
import json
import time


def file_of(name):
    """The mapped file that holds the process's first definition of a symbol."""
    try:
        symbol = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return None
    address = ctypes.cast(symbol, ctypes.c_void_p).value
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return line.split(maxsplit=5)[-1].strip()
    return None


server = file_of("cblas_sgemm")

import mlx.core as mx

mx.set_default_device(mx.cpu)
a, b = mx.random.normal((512, 512)), mx.random.normal((512, 512))
mx.eval(a, b)
best, until = float("inf"), time.perf_counter() + 1
while True:
    start = time.perf_counter()
    mx.eval(a @ b)
    best = min(best, time.perf_counter() - start)
    if time.perf_counter() > until:
        break
print(json.dumps({"best_s": best, "server": server}))
