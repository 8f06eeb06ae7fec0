"""A linear layer from a compiled bundle, its columns shared out over processes: no tilus, no compiler.

    torchrun --nproc-per-node 2 examples/serve.py BUNDLE N K

N columns are what one process computes. Where there are GPUs each process takes its own; elsewhere the emulator
executes the same code on the CPU. Rank 0 reads requests from its standard input: each line is a number of rows, which
are drawn at random. A process whose peer is gone or silent says so and ends with 1.
"""

import os
import re
import sys
import threading
from datetime import timedelta
from queue import Empty, SimpleQueue

import torch
import torch.distributed as dist

from blackwell_matmul import BlackwellMatmulError, check_matmul, emulate, load

BEAT_S = 0.5
TIMEOUT_S = 30
IDLE, END = 0, -1
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def own_device() -> torch.device:
    """The GPU that torchrun means for this process, made torch's current one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def join(device: torch.device) -> None:
    """Headers go over gloo, so that they need no GPU; tensors over the backend of their device."""
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"  # an operation of NCCL that takes too long is an error of its caller
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT_S))


class Layer:
    """Y = X @ W.T, where each process has its n rows of W; all get the whole Y."""

    def __init__(self, folder: str, n: int, k: int, device: torch.device) -> None:
        self.kernel, self.n, self.k = load(folder), n, k
        torch.manual_seed(0)  # the same in every process; a model would read its part from a file
        self.whole = torch.randn(WORLD * n, k).to(device, getattr(torch, self.kernel.bundle.schedule["dtype"]))
        self.own = self.whole[RANK * n :][:n]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(len(x), self.n)
        arguments = self.kernel.bundle.ordered(m=len(x), n=self.n, k=self.k, a_ptr=x, b_ptr=self.own, c_ptr=y)
        if x.is_cuda:
            self.kernel(*arguments)
        else:
            emulate(self.kernel.bundle, *arguments)
        parts = [torch.empty_like(y) for _ in range(WORLD)]
        dist.all_gather(parts, y)
        return torch.cat(parts, dim=1)


def read(requests: SimpleQueue[int]) -> None:
    for line in sys.stdin:
        if line.strip().isdigit():
            requests.put(int(line))
    requests.put(END)


def agreed(requests: SimpleQueue[int]) -> int:
    """What rank 0 takes from the queue, in every process: rows, END, or IDLE.

    All take part in the sum, and often: who is missing is noticed also while there is nothing to do.
    """
    header = torch.tensor(IDLE)
    if RANK == 0:
        try:
            header += requests.get(timeout=BEAT_S)
        except Empty:
            pass
    dist.all_reduce(header)
    return int(header)


def serve(layer: Layer, requests: SimpleQueue[int]) -> None:
    while (rows := agreed(requests)) != END:
        if rows == IDLE:
            continue
        x = torch.randn(rows, layer.whole.shape[1]).to(layer.whole)
        dist.broadcast(x, 0)
        y = layer(x)
        if RANK == 0:
            print(f"{rows} rows on {WORLD} processes, {check_matmul(x, layer.whole, y)}", flush=True)


def why(error: Exception) -> str:
    """Its first sentence, without the place in gloo's source that it begins with."""
    return re.sub(r"^\[\S+:\d+\] ", "", str(error)).partition("\n")[0].partition(". ")[0].rstrip(".")


def main(folder: str, n: str, k: str) -> int:
    requests: SimpleQueue[int] = SimpleQueue()
    try:
        device = own_device()
        join(device)
        layer = Layer(folder, int(n), int(k), device)
        if RANK == 0:
            threading.Thread(target=read, args=(requests,), daemon=True).start()
        serve(layer, requests)
    except (RuntimeError, ValueError, BlackwellMatmulError) as error:
        stops = f"rank {RANK} of {WORLD} stops: {why(error)}; mend that, or the rank that is gone, and start all again."
        print(stops, file=sys.stderr, flush=True)
        os._exit(1)  # not an orderly end, which would wait for the rank that is gone
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]) if len(sys.argv) == 4 else __doc__)
