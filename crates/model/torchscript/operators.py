"""Writes src/script_text/operators-2.0.1.txt: the operators that PyTorch 2.0.1 has, and what their overloads take.

    operators.py > src/script_text/operators-2.0.1.txt      with the Python of a virtual environment that has torch 2.0.1

A namespace is a line that ends in `::`. An operator is a line: its name, and its overloads, each once. An overload is the letters
of its positional arguments, those that have a default after a `,`; then `*` and its keyword-only arguments as `name:letter`, with
`!` after those without a default. `~` at the end stands for any more arguments. After `=` are the names of all positional
arguments. An operator without overloads takes anything. A letter is the type: t Tensor, i int and other enumerations, d the
number of a dtype, v a device, f float, n Scalar, b bool, s str, l a list, and x others; a capital letter also takes None.
"""

import re
import textwrap

import torch

assert torch.__version__.startswith("2.0.1"), torch.__version__
import torch.ao.nn.quantized  # noqa: E402, F401  (registers what quantized modules use)

LETTERS = {"Tensor": "t", "int": "i", "SymInt": "i", "float": "f", "number": "n", "Scalar": "n", "bool": "b", "str": "s",
           "Layout": "i", "MemoryFormat": "i", "QScheme": "i", "ScalarType": "d", "Device": "v"}


def letter(kind):
    if inner := re.fullmatch(r"Optional\[(.*)\]", kind):
        return letter(inner[1]).upper()
    return "l" if kind.startswith("List[") else LETTERS.get(kind, "x")


def argument_letter(argument):
    # Schemas that are written in C++ call the number of a dtype `int`.
    if argument.name in ("dtype", "output_dtype") and str(argument.type) in ("int", "Optional[int]"):
        return "D" if str(argument.type).startswith("Optional") else "d"
    return letter(str(argument.real_type))


def overload(schema):
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    required = [argument for argument in positional if not argument.has_default_value()]
    # None of the schemas has an argument without a default after one that has one.
    assert required == positional[:len(required)], schema
    text = "".join(argument_letter(argument) for argument in required)
    if len(required) < len(positional):
        text += "," + "".join(argument_letter(argument) for argument in positional[len(required):])
    keywords = [f"{argument.name}:{argument_letter(argument)}{'' if argument.has_default_value() else '!'}"
                for argument in schema.arguments if argument.kwarg_only]
    if keywords:
        text += "*" + ",".join(keywords)
    if "..." in str(schema).partition(" -> ")[0]:
        text += "~"
    return text or "()"


overloads, positional = {}, {}
older = [torch._C.parse_schema(entry.old_schema) for entries in torch._C._get_operator_version_map().values() for entry in entries]
for schema in torch._C._jit_get_all_schemas() + older:  # PyTorch still loads the older ones
    key = tuple(schema.name.split("::"))
    overloads.setdefault(key, set()).add(overload(schema))
    positional.setdefault(key, set()).update(argument.name for argument in schema.arguments if not argument.kwarg_only)
names = {tuple(name.partition(".")[0].split("::")) for name in torch._C._dispatch_get_all_op_names() if "::" in name}
# What the compiler makes of a name, without an operator of that name.
names |= {("prim", name) for name in "unchecked_cast rangelist type min max abs range".split()}
for name in names:
    overloads.setdefault(name, set())
for namespace in sorted({namespace for namespace, _ in overloads}):
    print(f"{namespace}::")
    for name in sorted(name for its, name in overloads if its == namespace):
        names = ",".join(sorted(positional.get((namespace, name), set())))
        line = " ".join([name, *sorted(overloads[namespace, name])] + ([f"={names}"] if names else []))
        print("\n".join(textwrap.wrap(line, 130, subsequent_indent=" ", break_long_words=False, break_on_hyphens=False)))
