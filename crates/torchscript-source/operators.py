"""Writes src/operators-2.0.1.txt: the names of the operators that PyTorch 2.0.1 has.

    operators.py > src/operators-2.0.1.txt      with the Python of a virtual environment that has torch 2.0.1
"""

import textwrap

import torch

assert torch.__version__.startswith("2.0.1"), torch.__version__
import torch.ao.nn.quantized  # noqa: E402, F401  (registers what quantized modules use)

names = {tuple(schema.name.split("::")) for schema in torch._C._jit_get_all_schemas()}
names |= {tuple(name.split("::")) for name in torch._C._dispatch_get_all_op_names() if "::" in name}
names = {(namespace, name.partition(".")[0]) for namespace, name in names}
# What the compiler makes of a name, without an operator of that name.
names |= {("prim", name) for name in "unchecked_cast rangelist type min max abs range".split()}
for namespace in sorted({namespace for namespace, _ in names}):
    print(f"{namespace}::")
    below = sorted({name for its, name in names if its == namespace})
    print("\n".join(textwrap.wrap(" ".join(below), 120, break_long_words=False, break_on_hyphens=False)))
