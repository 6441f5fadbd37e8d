#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch state dict (.pth, .pt) as a safetensors file, without the safetensors package.

    python3 tools/pth2safetensors.py resnet18-f37072fd.pth resnet18.safetensors
    hdo run e3 --set model.weights=resnet18.safetensors

Pickle files can run code when they are loaded: convert only files you trust. Training checkpoints that hold the
state dict under "state_dict" or "model" are understood. Integer tensors (num_batches_tracked) keep their type.
"""
import argparse
import json
import os
import struct
import sys

import torch

TYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


def tensors_of(obj):
    for key in ("state_dict", "model"):
        if isinstance(obj, dict) and isinstance(obj.get(key), dict):
            obj = obj[key]
    if not isinstance(obj, dict) or not all(isinstance(v, torch.Tensor) for v in obj.values()):
        sys.exit("this file holds no state dict (a dictionary of tensors)")
    return {k.removeprefix("module."): v.detach().cpu().contiguous() for k, v in obj.items()}


def raw(t):
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return t.numpy().tobytes()


def write(path, tensors, notes):
    header, chunks, at = {"__metadata__": notes}, [], 0
    for name, t in tensors.items():
        if t.dtype not in TYPES:
            sys.exit(f"tensor {name} has type {t.dtype}, which safetensors cannot hold")
        data = raw(t)
        header[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        chunks.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    tmp = f"{path}.tmp.{os.getpid()}"
    with open(tmp, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for c in chunks:
            f.write(c)
        f.flush()
        os.fsync(f.fileno())
    os.rename(tmp, path)


def main():
    p = argparse.ArgumentParser(description="Turn a PyTorch state dict into a safetensors file.")
    p.add_argument("input", help=".pth or .pt file")
    p.add_argument("output", help="safetensors file to write")
    a = p.parse_args()
    tensors = tensors_of(torch.load(a.input, map_location="cpu"))
    write(a.output, tensors, {"format": "pt", "source": os.path.basename(a.input)})
    print(f"{a.output}: {len(tensors)} tensors, {sum(t.numel() for t in tensors.values())} numbers")


if __name__ == "__main__":
    main()
