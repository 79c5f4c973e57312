"""Writes the TorchScript files in `scripts/`, with the newest PyTorch: modules that Carton's runner cannot run as they are.

    scripts.py      with the Python of a virtual environment that has torch
"""

import warnings
from pathlib import Path
from typing import List

import torch

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent / "scripts"
X = torch.ones(1, 4)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(x)


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 1)

    def forward(self, x):
        return torch.relu(self.conv(x))


class Narrow(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype).to(torch.float32)


class Attention(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, scale=0.5)


class Words(torch.nn.Module):
    def forward(self, x, mode: str = "a") -> List[str]:
        return [mode, "b"]


class Named(torch.nn.Module):
    def forward(self, x):
        return {"error": x}


def main():
    torch.manual_seed(0)
    HERE.mkdir(exist_ok=True)
    files = {
        "optimized": torch.jit.optimize_for_inference(torch.jit.script(Convolution().eval())),
        "float16": torch.jit.script(Layer().half()),
        "bfloat16": torch.jit.script(Layer().bfloat16()),
        "float16_in_code": torch.jit.trace(Narrow(torch.float16), X),
        "float8_in_code": torch.jit.trace(Narrow(torch.float8_e4m3fn), X),
        "uint16_in_code": torch.jit.trace(Narrow(torch.uint16), X),
        "attention": torch.jit.trace(Attention(), torch.ones(1, 1, 2, 4)),
        "words": torch.jit.script(Words()),
        "error_output": torch.jit.script(Named()),
    }
    for name, module in files.items():
        torch.jit.save(module, HERE / f"{name}.pt")


main()
