"""The virtual environments of the suite: what each contains, and how one is made, stamped and found again.

They are outside the tree, in $TORCH2CARTON_CONFORMANCE or ${XDG_CACHE_HOME:-~/.cache}/torch2carton/conformance. An
environment's folder is named after a hash of its recipe, so another recipe gets another folder. The stamp is written
last. A folder without a stamp is left over from an interrupted attempt and is made again.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PYTEST, NUMPY, SAFETENSORS = "pytest==9.2.0", "numpy==2.4.6", "safetensors==0.8.0"
META_REFERENCE = "llama-models==0.3.0"  # Meta's model.py; installed without its dependencies, fairscale is stubbed
TRANSFORMERS = "transformers==5.23.0"  # Hugging Face's models; the newest when this was written


@dataclass(frozen=True)
class Recipe:
    name: str  # its name in messages
    pythons: tuple[str, ...]  # versions that it works with, best first; empty: the Python that runs this
    steps: tuple[tuple[str, ...], ...]  # arguments of `pip install`, one call each
    fallback: tuple[tuple[str, ...], ...] = ()  # the steps to try if the pinned ones have no package for this Python
    imports: str = ""  # must run in the finished environment
    gigabytes: float = 1.0  # free space to require
    base: str = field(default="", repr=False)  # key of the environment whose packages this one can import, too
    unused: tuple[str, ...] = field(default=(), repr=False)  # large dependencies that no check imports
    sources: tuple[str, ...] = field(default=(), repr=False)  # archives of packages whose sources are unpacked into `sources/`, without installing them


TORCH = "torch==2.15.0"  # the newest when this was written

NEWEST = Recipe(
    name="newest torch",
    pythons=(),
    steps=((TORCH, NUMPY, SAFETENSORS, TRANSFORMERS, PYTEST, "tomli; python_version < '3.11'"), ("--no-deps", META_REFERENCE)),
    fallback=(("torch", "numpy", "safetensors", "transformers", "pytest", "tomli; python_version < '3.11'"),
              ("--no-deps", META_REFERENCE)),
    imports="import torch, numpy, safetensors, pytest, llama_models, transformers",
    gigabytes=8,
    unused=("triton",),  # a gigabyte; compiles kernels for GPUs
)
OLD = Recipe(
    name="torch 2.0.1",
    pythons=("3.11", "3.10", "3.9", "3.8"),  # the Pythons that torch 2.0.1 was built for
    steps=(("torch==2.0.1", "numpy<2"), ("--no-deps", META_REFERENCE)),
    imports="import torch, numpy; assert torch.__version__.startswith('2.0.1')",
    gigabytes=7,
)
CARTON = Recipe(
    name="Carton client",
    pythons=(),
    steps=(("--pre", "cartonml-nightly==0.0.1.dev20231020", "numpy<2"),),
    fallback=(("--pre", "cartonml-nightly==0.0.1.dev20231020", "numpy"),),
    imports="import cartonml",
    gigabytes=1,
)
OLDER = Recipe(
    name="torch 1.13.1",  # only writes TorchScript archives, as many were written that are still in use
    pythons=("3.11", "3.10", "3.9", "3.8"),
    steps=(("torch==1.13.1", "numpy<2"),),
    imports="import torch, numpy; assert torch.__version__.startswith('1.13.1')",
    gigabytes=6,
)
TRITON = Recipe(
    name="Triton client",
    pythons=(),
    steps=(("tritonclient[grpc,http]==2.73.0", NUMPY),),
    fallback=(("tritonclient[grpc,http]", "numpy"),),
    imports="import tritonclient.grpc, tritonclient.http, tritonclient.http.aio, gevent, numpy",
    gigabytes=1,
)
TIKTOKEN = Recipe(
    name="tiktoken",
    pythons=(),
    steps=(("tiktoken==0.14.0",), ("--no-deps", META_REFERENCE)),
    fallback=(("tiktoken",), ("--no-deps", META_REFERENCE)),
    imports="import tiktoken; from llama_models.llama3.tokenizer import Tokenizer",
    gigabytes=1,
)
MISTRAL = Recipe(
    name="mistral_common",  # the tokenizer of Mistral's models
    pythons=(),
    steps=(("mistral-common==1.13.1",),),
    fallback=(("mistral-common",),),
    imports="from mistral_common.tokens.tokenizers.tekken import Tekkenizer",
    gigabytes=1,
)
PEFT = Recipe(
    name="peft",  # merges adapters; what else it needs is in the base
    pythons=(),
    steps=(("--no-deps", "peft==0.21.0", "accelerate==1.15.0", "psutil==7.2.2"),),
    imports="import torch, transformers, peft",
    gigabytes=1,
    base="NEWEST",
)
QUANTIZED = Recipe(
    name="quantized weights",  # the methods' libraries, of which those that import many others only lend functions
    pythons=(),
    steps=(("--no-deps", "compressed-tensors==0.20.0", "bitsandbytes==0.50.2", "accelerate==1.15.0", "loguru==0.7.3", "psutil", "tqdm",
            "torchao==0.18.0", "optimum-quanto==0.2.7", "ninja==1.13.0", "termcolor==3.1.0",
            "setuptools==80.9.0", "wheel==0.45.1"),),  # the last two for the metadata of the sources
    imports="import torch, transformers, compressed_tensors, bitsandbytes, torchao, optimum.quanto",
    gigabytes=1,
    base="NEWEST",
    sources=("gptqmodel==7.7.0", "autoawq==0.2.9", "nvidia-modelopt==0.47.0", "hqq==0.2.8.post1", "torchao==0.15.0", "auto-round==0.16.1"),
)
MLX = Recipe(
    name="mlx",  # quantizes weights, and computes what they stand for, on a CPU
    pythons=("3.13", "3.12", "3.11", "3.10"),
    steps=(("mlx==0.32.4", "mlx-cpu==0.32.4"),),
    imports="import mlx.core",
)
COMFY = Recipe(
    name="comfy-kitchen",  # quantizes weights as ComfyUI stores them, and computes what they stand for, on a CPU
    pythons=(),
    steps=(("--no-deps", "comfy-kitchen==0.2.40"),),
    imports="import comfy_kitchen",
    gigabytes=1,
    base="NEWEST",
)
DEEPSPEED = Recipe(
    name="deepspeed",  # joins the files of ranks; nothing of it is compiled
    pythons=(),
    steps=(("setuptools==80.9.0", "wheel==0.45.1", "hjson==3.1.0", "py-cpuinfo==9.0.0", "psutil==7.2.2", "pydantic==2.12.5", "einops==0.8.2",
            "msgpack==1.1.2"),
           ("--no-deps", "--no-build-isolation", "deepspeed==0.19.8")),
    fallback=(("setuptools<81", "wheel", "hjson", "py-cpuinfo", "psutil", "pydantic", "einops", "msgpack"),
              ("--no-deps", "--no-build-isolation", "deepspeed==0.19.8")),
    imports="from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint",
    gigabytes=1,
    base="NEWEST",
)
TRAINERS = Recipe(
    name="lightning and accelerate",  # save checkpoints of torch.distributed in their own ways
    pythons=(),
    steps=(("--no-deps", "lightning==2.6.6", "torchmetrics==1.9.0", "lightning-utilities==0.15.3", "accelerate==1.15.0", "psutil==7.2.2",
            "zstandard==0.25.0"),),
    imports="import lightning.pytorch, accelerate, zstandard",
    gigabytes=1,
    base="NEWEST",
)
MEGATRON = Recipe(
    name="megatron",  # writes the checkpoints of its ranks on gloo, without a GPU
    pythons=(),
    steps=(("--no-deps", "megatron-core==0.16.1", "psutil==7.2.2"),),
    fallback=(("--no-deps", "megatron-core==0.16.1", "psutil"),),
    imports="import megatron.core, psutil",
    gigabytes=1,
    base="NEWEST",
)
DIFFUSERS = Recipe(
    name="diffusers",  # writes pipelines, and loads them
    pythons=(),
    steps=(("--no-deps", "diffusers==0.42.1", "importlib_metadata==8.7.0", "zipp==3.23.0", "requests==2.32.5", "urllib3==2.5.0", "certifi", "charset-normalizer==3.4.3", "pillow==12.0.0"),),
    fallback=(("--no-deps", "diffusers==0.42.1", "importlib_metadata", "zipp", "requests", "urllib3", "certifi", "charset-normalizer", "pillow"),),
    imports="from diffusers import StableDiffusionPipeline",
    gigabytes=1,
    base="NEWEST",
)
ORDINARY = Recipe(
    name="ordinary files",  # libraries whose objects people save; only a scan reads them
    pythons=(),
    steps=(("--no-deps", "torchvision==0.29.2", "timm==1.0.31", "ultralytics==8.4.190", "ultralytics-thop==2.2.3", "opencv-python-headless==5.0.0.93", "peft==0.21.2", "accelerate==1.15.0",
            "psutil==7.2.2", "lightning==2.6.6", "pytorch-lightning==2.6.6", "torchmetrics==1.9.0", "lightning-utilities==0.15.3", "scikit-learn==1.9.1", "joblib==1.6.0", "threadpoolctl==3.8.0",
            "scipy==1.17.1", "pandas==3.1.1", "cloudpickle==3.1.3", "omegaconf==2.4.0", "antlr4-python3-runtime==4.9.3", "xgboost==3.2.0", "lightgbm==4.7.0", "narwhals==2.29.0"),
           # What these import when they are imported.
           ("--no-deps", "python-dateutil", "pytz", "six", "requests", "urllib3", "certifi", "charset-normalizer", "matplotlib", "pillow", "contourpy", "cycler", "fonttools", "kiwisolver",
            "pyparsing", "polars", "polars-runtime-32", "tiktoken", "more-itertools", "numba==0.68.1", "llvmlite==0.50.0", "setuptools<81", "wheel"),
           ("--no-deps", "--no-build-isolation", "openai-whisper==20250625")),
    imports="import torch, torchvision, timm, ultralytics, peft, lightning, sklearn, pandas, omegaconf, whisper, xgboost, lightgbm",
    gigabytes=2,
    base="NEWEST",
)
LOADERS = Recipe(
    name="loaders",  # programs that run what is in a file or next to it; attacks show that they do
    pythons=(),
    steps=(("--no-deps", "msgpack==1.2.4", "msgpack-numpy==0.4.8", "h5py==3.16.0", "lmdb", "kernels==0.17.2", "smolagents==1.26.0", "python-dotenv==1.2.4", "pillow", "requests", "urllib3",
            "certifi", "charset-normalizer", "gymnasium==1.4.0", "farama-notifications==0.0.6", "cloudpickle==3.1.3", "kaldiio==2.18.1",
            "fiddle==0.3.1", "absl-py==2.5.1", "graphviz", "libcst", "pyhocon==0.3.63", "pyparsing==3.3.3"),),
    imports="import torch, msgpack, msgpack_numpy, h5py, kernels, smolagents, lmdb, gymnasium, kaldiio, fiddle, pyhocon",
    gigabytes=1,
    base="NEWEST",
)
OLD_ARROW = Recipe(
    name="pyarrow 13",  # the last that unpickles a type of a column
    pythons=("3.11", "3.10", "3.9", "3.8"),
    steps=(("pyarrow==13.0.0", "numpy<2"),),
    imports="import pyarrow",
    gigabytes=1,
)
BUCKETS = Recipe(
    name="object stores",  # emulators of S3 and of Google's service
    pythons=(),
    steps=(("moto[server,s3]==5.2.5", "gcp-storage-emulator==2026.7.19"),),
    fallback=(("moto[server,s3]", "gcp-storage-emulator"),),
    imports="import moto.server, boto3, gcp_storage_emulator",
    gigabytes=1,
)
GGUF = Recipe(
    name="gguf",  # reads, writes and dequantises the files of llama.cpp
    pythons=(),
    steps=(("gguf==0.19.0", NUMPY),),
    imports="import gguf, numpy; from gguf.quants import dequantize",
    gigabytes=1,
)
CONVERTER = Recipe(
    name="converter of llama.cpp",  # makes GGUF files; its script, and the version of gguf that it needs, are in the sources of a Python package
    pythons=(),
    steps=(("--no-deps", "sentencepiece==0.2.1", "protobuf==6.33.2", "scikit-build-core==0.11.6", "pathspec==0.12.1", "packaging", "cmake==4.4.5"),),
    fallback=(("--no-deps", "sentencepiece", "protobuf", "scikit-build-core", "pathspec", "packaging", "cmake"),),
    imports="import torch, transformers, sentencepiece, yaml",
    gigabytes=1,
    base="NEWEST",
    sources=("llama_cpp_python==0.3.36",),
)
LLAMA_CPP = Recipe(
    name="llama.cpp",  # loads GGUF files and computes with them
    pythons=(),
    steps=(("xllamacpp==2026.10.11549",),),
    imports="import xllamacpp",
    gigabytes=1,
)

PROOF = Recipe(
    name="statements",  # reads statements, and signs files
    pythons=(),
    steps=(("in-toto-attestation==0.9.3", "model-signing==1.1.1", "pyopenssl==26.4.0"),),  # the last is missing among those that the second asks for
    imports="import in_toto_attestation.v1.statement, model_signing",
    gigabytes=1,
)
OPENAI = Recipe(
    name="OpenAI client",
    pythons=(),
    steps=(("openai==3.57.0",),),
    fallback=(("openai",),),
    imports="import openai",
    gigabytes=1,
)
LM_EVAL = Recipe(
    name="lm-eval",  # asks for the log-probabilities of prompts
    pythons=(),
    steps=(("lm_eval[api]==0.4.13",),),
    imports="import lm_eval, torch, transformers",
    gigabytes=2,
    base="NEWEST",
)

ALL = {"NEWEST": NEWEST, "OLD": OLD, "OLDER": OLDER, "CARTON": CARTON, "TRITON": TRITON, "TIKTOKEN": TIKTOKEN, "MISTRAL": MISTRAL, "PEFT": PEFT, "QUANTIZED": QUANTIZED,
       "DEEPSPEED": DEEPSPEED, "TRAINERS": TRAINERS, "MEGATRON": MEGATRON, "BUCKETS": BUCKETS, "ORDINARY": ORDINARY, "DIFFUSERS": DIFFUSERS, "GGUF": GGUF,
       "CONVERTER": CONVERTER, "LLAMA_CPP": LLAMA_CPP, "PROOF": PROOF, "MLX": MLX,
       "COMFY": COMFY, "OPENAI": OPENAI, "LM_EVAL": LM_EVAL, "LOADERS": LOADERS, "OLD_ARROW": OLD_ARROW}


class CannotMake(Exception):
    """An environment could not be made; the text says why in one line."""


def root():
    if place := os.environ.get("TORCH2CARTON_CONFORMANCE"):
        return Path(place)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch2carton" / "conformance"


def make(recipe):
    """Path of the environment's Python; makes the environment if it does not exist."""
    python, version = interpreter(recipe)
    # What few recipes have is not part of the others' folders.
    whole = (recipe, version, recipe.base, recipe.sources) if recipe.base or recipe.sources else (recipe, version)
    key = hashlib.sha256(repr(whole).encode()).hexdigest()[:10]
    folder = root() / f"{recipe.name.replace(' ', '-')}-py{version}-{key}"
    inner = folder / "bin" / "python"
    if (folder / "stamp.json").exists():
        return inner
    base = make(ALL[recipe.base]) if recipe.base else None
    root().mkdir(parents=True, exist_ok=True)
    with open(root() / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "stamp.json").exists():  # another run made it while this one waited
            return inner
        free = shutil.disk_usage(root()).free / 1e9
        if free < recipe.gigabytes:
            raise CannotMake(f"it needs {recipe.gigabytes:.0f} GB in {root()}, {free:.1f} GB free")
        print(f"making the {recipe.name} environment in {folder} …", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            install(recipe, python, folder, inner, base)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # it takes gigabytes and cannot be used
            raise
    return inner


def install(recipe, python, folder, inner, base):
    command([python, "-m", "venv", folder])
    if base:
        packages = command([inner, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        shared = command([base, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        Path(packages, "base.pth").write_text(shared + "\n")
    pip = [inner, "-m", "pip", "install", "--quiet", "--retries", "2", "--disable-pip-version-check"]
    if "PIP_DEFAULT_TIMEOUT" not in os.environ:
        pip += ["--timeout", "60"]
    try:
        for step in recipe.steps:
            command([*pip, *step])
    except CannotMake:
        if not recipe.fallback:
            raise
        for step in recipe.fallback:
            command([*pip, *step])
    if recipe.unused:
        command([inner, "-m", "pip", "uninstall", "--quiet", "--yes", "--disable-pip-version-check", *recipe.unused])
    for source in recipe.sources:
        unpack_source(inner, source, folder / "sources")
    command([inner, "-c", recipe.imports])
    frozen = command([inner, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"])
    packages = {p["name"]: p["version"] for p in json.loads(frozen)}
    (folder / "stamp.json").write_text(json.dumps({"recipe": recipe.name, "packages": packages}, indent=1) + "\n")


def unpack_source(python, package, folder):
    """Downloads a package without those that it needs, and unpacks it. Nothing of it is built or run but its metadata."""
    folder.mkdir(exist_ok=True)
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--dest", folder / package]
    kind = "--only-binary" if package.startswith(("nvidia", "torchao", "auto-round")) else "--no-binary"
    command([python, "-m", "pip", "download", *flags, kind, ":all:", package])
    for archive in (folder / package).iterdir():
        shutil.unpack_archive(archive, folder / package, "zip" if archive.suffix == ".whl" else None)


def interpreter(recipe):
    """(path, version) of the first Python on this machine that the recipe can use."""
    candidates = [sys.executable] + [f"python{v}" for v in recipe.pythons]
    for candidate in candidates:
        path = shutil.which(candidate)
        if path is None:
            continue
        try:
            version = command([path, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]).strip()
        except CannotMake:
            continue
        if not recipe.pythons or version in recipe.pythons:
            return path, version
    wanted = "one of Python " + ", ".join(recipe.pythons) if recipe.pythons else "a Python with venv"
    raise CannotMake(f"it needs {wanted}, with the module venv; this machine has none on PATH")


def command(arguments):
    """Standard output of a command; if it fails, raises CannotMake with the most informative line."""
    # Settings of an outer environment must not leak in: PYTHONPATH would shadow the installed packages.
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV")}
    try:
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, env=clean, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise CannotMake(str(error)) from None
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or [f"exit status {done.returncode}"]
        raise CannotMake(telling[-1])
    return done.stdout


if __name__ == "__main__":
    print(*(make(ALL[key]) for key in sys.argv[1:]), sep="\n")
