# SPDX-License-Identifier: Apache-2.0
"""Named tensors: safetensors files and PyTorch's state dicts, in and out."""

import json
import os
import struct
import tempfile

import numpy as np

_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
          "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_}
_NAMES = {np.dtype(t): name for name, t in _TYPES.items()}


def load(path):
    """A safetensors file as a dict of arrays."""
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 8:
        raise ValueError(f"{path} is no safetensors file: it is shorter than 8 bytes")
    (length,) = struct.unpack("<Q", raw[:8])
    if length > len(raw) - 8:
        raise ValueError(f"{path} is no safetensors file: its header would be {length} bytes long")
    try:
        header = json.loads(raw[8:8 + length])
    except ValueError as e:
        raise ValueError(f"{path} is no safetensors file: its header is no JSON ({e})") from None
    data, out = raw[8 + length:], {}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        if row["dtype"] == "BF16":
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            out[name] = bits.view(np.float32).reshape(row["shape"])
        elif row["dtype"] in _TYPES:
            out[name] = np.frombuffer(data[begin:end], _TYPES[row["dtype"]]).reshape(row["shape"])
        else:
            raise ValueError(f"{path}: tensor {name} has type {row['dtype']}, which is not read here")
    return out


def save(path, tensors, notes=None):
    """Writes a dict of arrays (or a PyTorch state dict) as a safetensors file, whole or not at all."""
    header, blocks, at = {}, [], 0
    if notes:
        header["__metadata__"] = {str(k): str(v) for k, v in notes.items()}
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)
        if array.dtype not in _NAMES:
            raise ValueError(f"tensor {name} has type {array.dtype}, which safetensors does not know")
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(np.shape(tensor)),
                        "data_offsets": [at, at + array.nbytes]}
        blocks.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def named(run, flat):
    """A flat vector as named arrays: by the tensors of a problem of one's own, else as one called x."""
    own = run.config._own if run.config is not None else None
    if own is None or not own.tensors:
        shape = own.x0.shape if own is not None else flat.shape
        return {"x": np.array(flat).reshape(shape)}
    out, at = {}, 0
    for name, shape in own.tensors:
        size = int(np.prod(shape, dtype=np.int64)) if shape else 1
        out[name] = np.array(flat[at:at + size]).reshape(shape)
        at += size
    return out
