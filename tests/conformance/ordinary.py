"""Writes files that ordinary programs write: the objects of common libraries, pickled, and their checkpoints.

    ordinary.py FOLDER [PROTOCOL…]      a Python with any of the packages below

A few files for each maker that runs; a maker whose package is absent is skipped and named. A scan must find nothing dangerous in
any of them. The standard library's makers run in every Python from 3.6 on.
"""

import array
import collections
import copyreg  # noqa: F401
import datetime
import decimal
import fractions
import functools
import http
import io
import ipaddress
import itertools
import logging
import operator
import pathlib
import pickle
import random
import re
import signal
import socket
import string
import sys
import types
import typing
import uuid
from pathlib import Path

MAKERS, EACH = {}, set()


def maker(function):
    MAKERS[function.__name__] = function
    return function


def each(function):
    """A maker each of whose values also gets a file of its own, as their programs save them."""
    EACH.add(function.__name__)
    return maker(function)


def try_all(makers):
    """What each of some functions returns, without those that this version does not have."""
    found = []
    for make in makers:
        try:
            found.append(make())
        except Exception:
            continue
    return found


def small(models):
    """The models with one number for each tensor: what a file names does not depend on the sizes."""
    for model in models:
        if not isinstance(model, dict):
            for tensor in [*model.parameters(), *model.buffers()] if hasattr(model, "parameters") else []:
                tensor.data = tensor.data.flatten()[:1].clone()
        elif "model" in model:
            small([model["model"]])
    return models


# The standard library.


@maker
def numbers_and_dates():
    day = datetime.datetime(2024, 5, 6, 7, 8, tzinfo=datetime.timezone.utc)
    return [day, day.date(), day.time(), day - day, decimal.Decimal("1.5"), fractions.Fraction(1, 3), 1 + 2j, uuid.UUID(int=1),
            datetime.timezone(datetime.timedelta(hours=2)), range(3), slice(1, 2), bytearray(b"ab"), b"ab", frozenset([1]), {1, 2},
            decimal.getcontext(), Ellipsis, NotImplemented, type(None)]


@maker
def containers():
    Point = collections.namedtuple("Point", "x y")  # noqa: N806
    Point.__module__ = "shapes"
    return [collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), collections.Counter("ab"), collections.deque([1], 3),
            collections.ChainMap({}, {}), collections.UserDict(a=1), collections.UserList([1]), collections.UserString("a"),
            array.array("d", [1.0]), types.SimpleNamespace(a=1), io.BytesIO(b"1"), io.StringIO("a"), iter([1]), iter({1: 2}),
            itertools.count(3), itertools.chain([1], [2]), itertools.repeat(1, 2), enumerate([1]), zip([1], [2]), reversed([1]),
            collections.defaultdict(functools.partial(collections.defaultdict, int))]


@maker
def enumerations():
    return [signal.SIGINT, signal.Signals.SIGTERM, http.HTTPStatus.OK, socket.AF_INET, socket.SOCK_STREAM, re.I | re.M, uuid.SafeUUID.safe,
            *try_all([lambda: __import__("inspect").Parameter.KEYWORD_ONLY, lambda: __import__("ssl").TLSVersion.TLSv1_2,
                      lambda: __import__("http").HTTPMethod.GET, lambda: __import__("plistlib").FMT_XML, lambda: __import__("tkinter").EventType.KeyPress])]


@maker
def annotations():
    return [typing.Any, typing.Optional, typing.Union, typing.List, typing.Callable, *try_all([
        lambda: typing.Optional[int], lambda: typing.Union[int, str, None], lambda: typing.List[int], lambda: typing.Dict[str, typing.Any],
        lambda: typing.Callable[[int], str], lambda: typing.Tuple[int, ...], lambda: typing.Sequence[float], lambda: typing.Type[int],
        lambda: typing.Literal["a", 1], lambda: typing.Annotated[int, 5], lambda: typing.Iterable[str], lambda: typing.ClassVar[int],
        lambda: list[int], lambda: dict[str, list[int]], lambda: tuple[int, ...], lambda: int | str, lambda: int | None, lambda: list[int] | None,
        lambda: collections.abc.Sequence[int], lambda: type[int], lambda: typing.Final[int]])]


@maker
def callables():
    return [operator.itemgetter(1), operator.itemgetter("name", 2), functools.partial(int, base=2), functools.partial(sorted, reverse=True),
            len, sorted, operator.add, operator.mul, str.lower, str.strip, max, abs, re.compile("a+", re.I), math_of("sqrt"), dict.get, "-".join,
            functools.partial(round, ndigits=2), int, float, str, dict, list, tuple, object, bytes, collections.OrderedDict]


def math_of(name):
    import math
    return getattr(math, name)


@maker
def settings():
    import argparse
    import inspect
    return [argparse.Namespace(a=1), logging.getLogger("a.b"), logging.getLogger(), pathlib.Path("/a/b"), pathlib.PurePosixPath("a"),
            pathlib.PureWindowsPath("a"), random.Random(3), string.Template("$a"), ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/8"),
            inspect.signature(len) if sys.version_info > (3, 8) else None, logging.LogRecord("a", 10, "b", 1, "c", (), None),
            *try_all([lambda: __import__("zoneinfo").ZoneInfo("UTC"), lambda: __import__("time").localtime(0), lambda: __import__("os").stat("/"),
                      lambda: __import__("urllib.parse").parse.urlparse("http://a/b"), lambda: __import__("http.cookies").cookies.SimpleCookie("a=b"),
                      lambda: __import__("statistics").NormalDist(), lambda: __import__("xml.etree.ElementTree").etree.ElementTree.Element("a")])]


@maker
def exceptions():
    return [ValueError("a"), KeyError("a"), OSError(2, "a", "b"), UnicodeDecodeError("utf-8", b"a", 0, 1, "b"), StopIteration(1), KeyboardInterrupt(),
            RuntimeError("a"), AssertionError(), Warning("a"), FileNotFoundError(2, "a")]


# numpy.


@maker
def numpy_objects():
    import numpy as np
    return [np.arange(6).reshape(2, 3), np.float32(1), np.int64(2), np.dtype("f4"), np.dtype([("a", "i4")]), np.bool_(True), np.datetime64("2020-01-01"),
            np.random.RandomState(1), np.random.default_rng(1), np.array(["a", None], dtype=object), np.ma.array([1, 2], mask=[0, 1]), np.matrix([[1]]),
            np.array([1], ">i2"), np.zeros((0, 3)), np.str_("a"), np.bytes_(b"a"), np.float64, np.ndarray, np.poly1d([1, 2]), np.rec.array([(1, 2.0)]),
            np.sin, np.mean, np.add, np.log1p, np.linalg.norm, np.array([(1, "a")], dtype="i4,U3"), np.asfortranarray(np.ones((2, 2))),
            np.random.MT19937(1), np.random.SeedSequence(5), np.random.Generator(np.random.Philox(1)), np.polynomial.Polynomial([1, 2]),
            np.random.get_state(), np.finfo("f4").eps, np.random.SFC64(1), functools.partial(np.clip, a_min=0, a_max=1)]


# torch.


@maker
def torch_functions():
    import torch
    import torch.nn.functional as F  # noqa: N812
    return [torch.relu, torch.tanh, torch.sigmoid, torch.softmax, F.relu, F.gelu, F.silu, F.softmax, F.cross_entropy, torch.nn.init.xavier_uniform_,
            torch.Tensor.relu, torch.linalg.norm, torch.fft.fft, torch.special.erf, functools.partial(F.gelu, approximate="tanh"),
            functools.partial(torch.nn.LayerNorm, eps=1e-6), functools.partial(torch.optim.Adam, lr=1e-3), functools.partial(torch.softmax, dim=-1),
            torch.nn.Linear, torch.optim.AdamW, torch.add, torch.matmul, torch.zeros, torch.abs, torch.nn.init.zeros_, torch.nn.functional.mse_loss]


@maker
def torch_objects():
    import torch
    values = [torch.ones(2), torch.float16, torch.Size([1, 2]), torch.device("cpu"), torch.Generator(), torch.strided, torch.nn.Parameter(torch.ones(1)),
              torch.tensor([1, 2]).to_sparse(), torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), torch.ones(2, dtype=torch.bfloat16),
              torch.ones(2).storage(), torch.finfo(torch.float32).eps, torch.distributions.Normal(0.0, 1.0), torch.get_rng_state(), torch.complex64]
    return values


@maker
def torch_memory_format():
    import torch
    return {"format": torch.channels_last, "preserve": torch.preserve_format}


@each
def torch_modules():
    import torch
    from torch import nn
    layers = [nn.Linear(2, 2), nn.Conv2d(1, 1, 1), nn.BatchNorm1d(2), nn.LSTM(2, 2), nn.GRU(2, 2), nn.Embedding(3, 2), nn.ReLU(), nn.GELU(), nn.Dropout(),
              nn.Sequential(nn.Flatten(), nn.Sigmoid()), nn.ModuleDict({"a": nn.Identity()}), nn.ParameterList([nn.Parameter(torch.ones(1))]),
              nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1), nn.MultiheadAttention(4, 2), nn.CrossEntropyLoss(), nn.LayerNorm(2),
              nn.Transformer(4, 2, 1, 1, 8), nn.ConvTranspose2d(1, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=2), nn.SyncBatchNorm(2),
              nn.utils.weight_norm(nn.Linear(2, 2)), nn.utils.spectral_norm(nn.Linear(2, 2)), nn.PReLU(), nn.Hardswish(), nn.Unfold(1), nn.DataParallel(nn.Linear(1, 1)),
              nn.Softmax(dim=1), nn.MaxPool2d(2), nn.GroupNorm(1, 2), nn.InstanceNorm2d(2), nn.Bilinear(1, 1, 1), nn.EmbeddingBag(2, 2), nn.KLDivLoss()]
    import torch.nn.utils.prune

    import torch.utils._pytree as pytree

    # Lazy modules keep methods of theirs as hooks; exported programs keep the shapes of trees.
    layers += try_all([lambda: nn.LazyLinear(2), lambda: nn.LazyConv2d(1, 1), lambda: nn.LazyBatchNorm1d()])
    layers += try_all([lambda: pytree.tree_structure({"a": [1, (2, 3)], "b": None}), lambda: pytree.tree_structure(collections.OrderedDict(a=1))])
    pruned = nn.Linear(2, 2)
    torch.nn.utils.prune.l1_unstructured(pruned, "weight", 0.5)
    return [*layers, pruned]


@each
def torch_training():
    import torch
    from torch import optim
    found = []
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS", "Rprop", "ASGD", "SparseAdam"):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = getattr(optim, name)([weight], lr=0.1)
        found += [optimizer, optimizer.state_dict()]
    optimizer = optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    s = optim.lr_scheduler
    found += [scheduler.state_dict() for scheduler in (s.StepLR(optimizer, 1), s.CosineAnnealingLR(optimizer, 3), s.ReduceLROnPlateau(optimizer), s.OneCycleLR(optimizer, 1, 10))]
    # Optimizers of newer versions, which their package shows under its own name.
    found += try_all([lambda name=name: getattr(optim, name)([torch.nn.Parameter(torch.ones(2, 2))]) for name in ("Adafactor", "Muon")])
    found += try_all([lambda: torch.amp.GradScaler("cpu").state_dict(), lambda: torch.amp.GradScaler("cpu"), lambda: torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1))])
    found += [optim.swa_utils.SWALR(optimizer, 0.1, anneal_strategy=strategy).state_dict() for strategy in ("cos", "linear")]
    data = torch.utils.data
    sets = data.TensorDataset(torch.ones(3))
    found += [sets, data.Subset(sets, [0]), data.ConcatDataset([sets, sets]), data.RandomSampler(sets), data.BatchSampler(data.SequentialSampler(sets), 2, False), data.DataLoader(sets)]
    return found


@maker
def torch_quantized():
    import torch
    from torch.ao import quantization
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    return [quantization.default_qconfig, quantization.get_default_qconfig("fbgemm"), quantization.MinMaxObserver(), quantization.HistogramObserver(),
            quantization.FakeQuantize(), quantization.get_default_qat_qconfig("fbgemm"), quantization.quantize_dynamic(model)]

@each
def torch_checkpoints():
    """What training loops save."""
    import argparse

    import numpy as np
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    average = torch.optim.swa_utils.AveragedModel(model)
    states = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": torch.tensor(0.5), "losses": [0.1, np.float64(0.2)]}
    return [model.state_dict(), states, {**states, "args": argparse.Namespace(lr=0.1, path=pathlib.Path("data"), betas=(0.9, 0.99))}, {"module." + key: value for key, value in model.state_dict().items()},
            {"ema": average.state_dict(), "model": model.half()}, {"rng": [torch.get_rng_state(), np.random.get_state(), random.getstate()], "when": datetime.datetime(2024, 1, 1)},
            {"config": collections.defaultdict(dict, a={"b": 1}), "classes": np.array(["a", "b"]), "device": torch.device("cpu"), "dtype": torch.bfloat16, "shape": torch.Size([1])},
            {"params": dict(model.named_parameters()), "buffers": [torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex64)]}, torch.compile(model).state_dict(),
            {"weights": np.ones((2, 2), np.float32), "labels": {0: "a", 1: "b"}, "log": io.StringIO("text"), "version": torch.__version__}, list(model.parameters()),
            {"scaler": torch.amp.GradScaler("cpu").state_dict(), "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3).state_dict()}, torch.nn.utils.parameters_to_vector(model.parameters())]


@maker
def torch_scripts():
    """Archives of TorchScript, by name."""
    import torch
    from torch import nn

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.names, self.scale = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), ["a", "it's \"quoted\"\n"], 0.5

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            found: dict[str, torch.Tensor] = {}
            for index, layer in enumerate(self.layers):
                x = torch.relu(layer(x)) if x.sum() > 0 else layer(x) * self.scale
                found[self.names[index]] = x
            while x.numel() < 4:
                x = torch.cat([x, x])
            if mask is not None:
                x = x.masked_fill(mask, float("-inf"))
            assert x.dim() > 0, f"a message with {x.dim()} in it"
            found["x"] = x[:, 1:].contiguous()
            return found

    class Stated(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x + self.weight

        @torch.jit.export
        def __getstate__(self):
            return (self.weight, self.training)

        @torch.jit.export
        def __setstate__(self, state: tuple[torch.Tensor, bool]):
            self.weight = state[0]
            self.training = state[1]

    def vision(name, detection=False, **settings):
        import torchvision.models as models
        return getattr(models.detection if detection else models, name)(weights=None, **settings)

    script, trace = torch.jit.script, lambda module, *inputs: torch.jit.trace(module, inputs, check_trace=False)
    makers = {"branches": lambda: script(Branches()), "stated": lambda: script(Stated()), "lstm": lambda: script(nn.LSTM(2, 2)), "traced": lambda: trace(nn.Sequential(nn.Linear(2, 2), nn.GELU()), torch.ones(1, 2)),
              "attention": lambda: trace(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), torch.ones(1, 3, 4)), "frozen": lambda: torch.jit.freeze(script(nn.Linear(2, 2).eval())),
              "quantized": lambda: script(torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))), "embedding": lambda: script(nn.EmbeddingBag(3, 2)),
              "upsample": lambda: script(nn.Upsample(scale_factor=2.0, mode="bilinear")), "mobilenet": lambda: trace(vision("mobilenet_v2").eval(), torch.ones(1, 3, 32, 32)),
              "detection": lambda: script(vision("ssdlite320_mobilenet_v3_large", detection=True, weights_backbone=None))}
    makers |= {name: lambda name=name: script(vision(name)) for name in ("squeezenet1_0", "mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet")}
    files = {}
    for name, make in makers.items():
        for module in try_all([make]):
            file = io.BytesIO()
            torch.jit.save(module, file)
            files[f"{name}.pt"] = file.getvalue()
    files["lite.ptl"] = script(nn.Linear(2, 2))._save_to_buffer_for_lite_interpreter()
    return files


@maker
def torch_exports():
    """Exported programs, by name."""
    import torch
    from torch import nn

    class Shaped(nn.Module):
        def forward(self, x, y):
            return (x[: x.shape[0] // 2].reshape(-1, 2) + 1, torch.cat([x, y]), x.shape[0] * 3 + 1, {"z": y.mean()})

    class Items(nn.Module):
        def forward(self, x):
            n = x.sum().item()
            torch._check(n >= 2)
            torch._check(n <= 10)
            return x + torch.zeros(n)[:1]

    batch, even = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("half", min=2, max=9)
    programs = {"plain": lambda: torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)),
                "dynamic": lambda: torch.export.export(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(3, 2),), dynamic_shapes=({0: batch},)),
                "shaped": lambda: torch.export.export(Shaped(), (torch.ones(8, 2), torch.ones(3, 2)), dynamic_shapes=({0: 2 * even}, {0: batch})),
                "items": lambda: torch.export.export(Items(), (torch.tensor([3]),)),
                "attention": lambda: torch.export.export(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (torch.ones(2, 3, 4),), dynamic_shapes=({0: batch, 1: torch.export.Dim.AUTO},)),
                "convolution": lambda: torch.export.export(nn.Conv2d(1, 2, 3, padding=1), (torch.ones(2, 1, 8, 8),), dynamic_shapes=({0: batch, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO},)),
                "lstm": lambda: torch.export.export(nn.LSTM(2, 2), (torch.ones(3, 1, 2),))}
    files = {}
    for name, make in programs.items():
        file = io.BytesIO()
        for program in try_all([make]):
            torch.export.save(program, file)
            files[f"{name}.pt2"] = file.getvalue()
    return files


@each
def sympy_objects():
    import sympy
    x, n = sympy.Symbol("x", positive=True), sympy.Symbol("n")
    return [x, sympy.Integer(3), sympy.Rational(1, 2), sympy.Float(1.5), {"s0": x, "one": sympy.Integer(1)}, [sympy.Symbol("s0", integer=True), sympy.S.true, sympy.oo, sympy.pi], x + 2 * n]


# Other libraries.


@each
def peft_adapters():
    import peft
    import torch
    from torch import nn
    configs = [peft.LoraConfig(target_modules=["0"]), peft.LoraConfig(target_modules=["0"], use_dora=True, r=4), peft.IA3Config(target_modules=["0"], feedforward_modules=["0"]), peft.LoHaConfig(target_modules=["0"]),
               peft.LoKrConfig(target_modules=["0"]), peft.OFTConfig(target_modules=["0"], r=1, oft_block_size=0), peft.VeraConfig(target_modules=["0"]), peft.BOFTConfig(target_modules=["0"]), peft.AdaLoraConfig(target_modules=["0"], total_step=10)]
    found = [*configs, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2), peft.TaskType.CAUSAL_LM, peft.PeftType.LORA]
    for config in configs:
        for model in try_all([lambda config=config: peft.get_peft_model(nn.Sequential(nn.Linear(4, 4)), config)]):
            found += [peft.get_peft_model_state_dict(model), model]
    return [*found, {"peft_config": configs[0].to_dict(), "state": torch.ones(1)}]


@each
def whisper_models():
    import dataclasses

    import torch
    import whisper
    dims = whisper.ModelDimensions(4, 8, 4, 1, 1, 10, 8, 4, 1, 1)
    model = whisper.Whisper(dims)
    return [{"dims": dataclasses.asdict(dims), "model_state_dict": model.state_dict()}, {"dims": dims, "model_state_dict": model.half().state_dict()}, dims,
            *try_all([lambda: model, lambda: whisper.DecodingOptions(), lambda: {"segments": [{"id": 0, "text": "a", "tokens": [1, 2]}], "mel": torch.ones(1, 2)}])]


@each
def boosters():
    import lightgbm
    import numpy as np
    import xgboost
    x, y = np.random.RandomState(0).rand(40, 3), np.arange(40) % 2
    return [xgboost.XGBClassifier(n_estimators=2).fit(x, y), xgboost.XGBRegressor(n_estimators=2).fit(x, y), lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(x, y),
            lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(x, y)]


@each
def lightning_objects():
    """Callbacks and loggers that programs pickle whole."""
    import lightning.pytorch as pl
    from lightning.pytorch import callbacks, loggers
    import torch
    folder = __import__("tempfile").mkdtemp()
    return [callbacks.ModelCheckpoint(dirpath=folder), callbacks.EarlyStopping("loss"), callbacks.LearningRateMonitor(), callbacks.StochasticWeightAveraging(0.1), callbacks.GradientAccumulationScheduler({1: 2}),
            callbacks.ModelCheckpoint(dirpath=folder, monitor="loss", save_top_k=2).state_dict(), loggers.CSVLogger(folder), pl.LightningDataModule(), pl.utilities.parsing.AttributeDict(a=1, optimizer=torch.optim.Adam),
            *try_all([lambda: callbacks.Timer(duration="00:01:00:00"), lambda: callbacks.RichProgressBar(), lambda: callbacks.ModelSummary()])]


@maker
def hugging_face_folders():
    """What `save_pretrained` writes, by name."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models
    files = {}
    template = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] | trim }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    for config in (transformers.LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10),
                   transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10), transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=10)):
        folder = Path(__import__("tempfile").mkdtemp())
        model = transformers.AutoModel.from_config(config)
        model.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), unk_token="[UNK]")
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder)
        transformers.GenerationConfig(max_new_tokens=3).save_pretrained(folder)
        files |= {f"{config.model_type}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    return files


@each
def scikit_learn():
    import numpy as np
    from sklearn import (cluster, compose, decomposition, ensemble, feature_extraction, gaussian_process, impute, linear_model, metrics,
                         mixture, model_selection, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree)
    x, y = np.random.RandomState(0).rand(30, 4), np.arange(30) % 2
    models = [linear_model.LogisticRegression(), linear_model.LinearRegression(), svm.SVC(probability=False), ensemble.RandomForestClassifier(3), tree.DecisionTreeClassifier(),
              ensemble.GradientBoostingClassifier(n_estimators=3), ensemble.HistGradientBoostingClassifier(max_iter=3), neighbors.KNeighborsClassifier(3), naive_bayes.GaussianNB(),
              neural_network.MLPClassifier(max_iter=5), cluster.KMeans(2, n_init=1), decomposition.PCA(2), mixture.GaussianMixture(2), preprocessing.StandardScaler(), preprocessing.MinMaxScaler(),
              gaussian_process.GaussianProcessClassifier(), linear_model.SGDClassifier(), ensemble.IsolationForest(n_estimators=3), impute.SimpleImputer(), ensemble.AdaBoostClassifier(n_estimators=2),
              pipeline.make_pipeline(preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(), svm.LinearSVC()), linear_model.Ridge(), neighbors.KernelDensity(),
              compose.ColumnTransformer([("a", preprocessing.FunctionTransformer(np.log1p), [0])]), preprocessing.FunctionTransformer(np.sqrt), neighbors.BallTree(x), neighbors.KDTree(x),
              model_selection.GridSearchCV(svm.SVC(), {"C": [1, 2]}, scoring="accuracy"), ensemble.VotingClassifier([("a", naive_bayes.GaussianNB())])]
    fitted = [model.fit(x, y) if hasattr(model, "fit") else model for model in models]
    text = feature_extraction.text
    fitted += [text.TfidfVectorizer(preprocessor=str.lower).fit(["some words", "more words"]), text.CountVectorizer(tokenizer=str.split).fit(["some words"]), preprocessing.LabelEncoder().fit(["a", "b"]),
               preprocessing.OneHotEncoder().fit([["a"], ["b"]]), metrics.make_scorer(metrics.f1_score), feature_extraction.DictVectorizer().fit([{"a": 1}])]
    return fitted


@maker
def pandas_and_scipy():
    import pandas as pd
    import scipy.sparse
    import scipy.stats
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.to_datetime(["2020-01-01", None]), "d": pd.Categorical(["u", "v"])})
    return [frame, frame["a"], frame.index, pd.Timestamp("2020"), pd.Timedelta("1D"), pd.MultiIndex.from_product([[1], [2]]), pd.Interval(0, 1),
            scipy.sparse.csr_matrix([[1, 0]]), scipy.stats.norm(0, 1), pd.NA, frame.groupby("a").size(), pd.date_range("2020", periods=2, tz="UTC")]


@each
def transformers_arguments():
    import transformers
    found = [transformers.TrainingArguments("out", report_to=[]), transformers.Seq2SeqTrainingArguments("out", report_to=[])]
    found += [transformers.BertConfig(), transformers.GenerationConfig(), transformers.TrainerState(), transformers.TrainerControl(), transformers.GPT2Config()]
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10)
    return [*found, transformers.BertModel(config), transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10)), *try_all([
            lambda: transformers.get_linear_schedule_with_warmup(__import__("torch").optim.SGD([__import__("torch").ones(1)], 0.1), 1, 2).state_dict(),
            lambda: transformers.BatchEncoding({"a": [1]}), lambda: transformers.modeling_outputs.BaseModelOutput(),
            lambda: transformers.BitsAndBytesConfig(), lambda: transformers.T5Model(transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9)),
            lambda: transformers.ViTModel(transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)),
            lambda: transformers.CLIPModel(transformers.CLIPConfig(**{part: {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
                                                                  for part in ("text_config", "vision_config")}))])]


@each
def timm_models():
    import timm
    return small(try_all([lambda name=name: timm.create_model(name) for name in (
        "resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050", "efficientnet_b0", "convnext_atto", "mixer_s32_224", "regnetx_002", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224")]))


@each
def torchvision_models():
    import torchvision
    found = try_all([lambda name=name: getattr(torchvision.models, name)(weights=None) for name in (
        "resnet18", "mobilenet_v3_small", "squeezenet1_0", "shufflenet_v2_x0_5", "googlenet", "vit_b_32", "efficientnet_b0", "convnext_tiny", "densenet121", "swin_t")])
    t = torchvision.transforms
    found.append(t.Compose([t.Resize(8), t.ToTensor(), t.Normalize([0.5], [0.5]), t.RandomHorizontalFlip(), t.ColorJitter(0.1)]))
    return small(found + try_all([lambda: torchvision.models.ResNet18_Weights.DEFAULT, lambda: torchvision.models.detection.fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None)]))


@each
def ultralytics_models():
    from ultralytics.nn.tasks import ClassificationModel, DetectionModel, SegmentationModel
    from ultralytics.utils import DEFAULT_CFG
    return small([{"model": DetectionModel("yolov8n.yaml"), "train_args": vars(DEFAULT_CFG), "date": datetime.datetime.now().isoformat()},
            DEFAULT_CFG, *try_all([lambda: SegmentationModel("yolov8n-seg.yaml"), lambda: ClassificationModel("yolov8n-cls.yaml"), lambda: DetectionModel("yolo11n.yaml")])])


@maker
def lightning_checkpoint():
    import warnings

    import lightning
    import torch
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    class Model(lightning.LightningModule):
        def __init__(self, path=pathlib.Path("data"), activation=torch.relu, optimizer=functools.partial(torch.optim.Adam, lr=0.1)):  # noqa: B008
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            loss = self.layer(batch[0]).sum()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            optimizer = self.hparams.optimizer(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    folder = Path(__import__("tempfile").mkdtemp())
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 2)))
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_progress_bar=False, accelerator="cpu", default_root_dir=folder, enable_model_summary=False,
                                callbacks=[EarlyStopping("loss"), ModelCheckpoint(dirpath=folder, monitor="loss")])
    trainer.fit(Model(), data)
    trainer.save_checkpoint(folder / "model.ckpt")
    return (folder / "model.ckpt").read_bytes()


@maker
def omegaconf_config():
    import omegaconf
    return omegaconf.OmegaConf.create({"a": [1, 2, {"b": "c"}], "path": "/x", "none": None})


def main():
    folder = Path(sys.argv[1])
    protocols = [int(word) for word in sys.argv[2:]] or [2, pickle.HIGHEST_PROTOCOL]
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        try:
            made = make()
        except Exception as error:  # the package is absent or of another version
            print("skipped", name, type(error).__name__, str(error)[:120].replace("\n", " "))
            continue
        print("made", name)
        if isinstance(made, bytes):
            made = {name + ".ckpt": made}
        if isinstance(made, dict) and made and all(isinstance(value, bytes) for value in made.values()):
            for file, data in made.items():
                path = folder / (file if "/" in file or file.startswith(name) else name + "_" + file)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
            continue
        for protocol in protocols:
            write(folder, name, made, protocol)


def write(folder, name, made, protocol):
    """A pickle of everything that can be pickled, and for torch a checkpoint of it."""
    kept = []
    for value in made if isinstance(made, list) else [made]:
        try:
            pickle.dumps(value, protocol)
        except Exception as error:
            print("unpicklable", name, protocol, type(value).__name__, str(error)[:80])
            continue
        kept.append(value)
    (folder / "{}_{}.pkl".format(name, protocol)).write_bytes(pickle.dumps(kept, protocol))
    if "torch" in sys.modules and protocol == 2:
        import torch
        torch.save(kept, str(folder / (name + ".pt")))
        torch.save(kept, str(folder / (name + "_legacy.pt")), _use_new_zipfile_serialization=False)
        for number, value in enumerate(kept) if name in EACH else ():
            torch.save(value, str(folder / "{}_{}.pt".format(name, number)))
    if "sklearn" in sys.modules and name == "scikit_learn":
        import joblib
        joblib.dump(kept, str(folder / "{}_{}.joblib".format(name, protocol)), protocol=protocol)


if __name__ == "__main__":
    main()
