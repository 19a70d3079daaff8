"""The traps: ways known to the field, and more of each kind, in which a base loses its torch. One entry each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

from builder.wheelhouse import Wheel

TORCH = "2.12.0+rocm7.14.0a20260608"
TRITON = "3.7.0+gitb4e20bbe.rocm7.14.0a20260608"
INDEX = "@INDEX@"  # where the index stands, as a file address
EXTRA = "@EXTRA@"  # another one
PYTHON = "@PYTHON@"  # such as python3.12


@dataclass(frozen=True, kw_only=True)
class Trap:
    """One way to lose the base.

    Attributes:
        case: the field's case, or the kind that it is one more of.
        title: what is tried.
        lines: the requirement file.
        by: the rule that has to catch it; `plan` where pip finds none under the constraints, none for what is harmless.
        says: facts that the refusal carries.
        write: files of the base that are changed before the seal, below site-packages.
        remove: what is taken out of the base before the seal, as globs.
        broken: of what is changed, whether it happens after the seal, before the step.
        environment: variables of the base.
        configuration: lines of its pip.conf.
        policy: parts of the image's policy that differ.
        optional: sealed names that the base may lack.
    """

    case: str
    title: str
    lines: str = ""
    by: str = ""
    says: Sequence[str] = ()
    write: Mapping[str, str] = field(default_factory=dict)
    remove: Sequence[str] = ()
    broken: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    configuration: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)
    optional: Sequence[str] = ()


def wheel(name: str, version: str, *requires: str, **files: str) -> Wheel:
    """A wheel with one module of its name, or with these files."""
    stem = canonicalize_name(name).replace("-", "_")
    texts = {path: text.encode() for path, text in files.items()} or {
        f"{stem}/__init__.py": b"",
        "tests/__init__.py": b"",
    }
    return Wheel(name=name, version=version, requires=requires, files=texts)


def with_files(name: str, files: Mapping[str, str]) -> Wheel:
    return Wheel(name=name, version="1.0", files={path: text.encode() for path, text in files.items()})


BACKEND = """import base64, hashlib, os, re, zipfile
from importlib import metadata
NAME = {name!r}
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
def note(what):
    if os.environ.get("TRAP_NOTE"):
        with open(os.environ["TRAP_NOTE"], "a") as file:
            file.write(what + "\\n")
def get_requires_for_build_wheel(config_settings=None):
    return []
def build_wheel(folder, config_settings=None, metadata_directory=None):
    note(f"built against torch {{version('torch')}}")
{code}
    info, name = f"{{NAME}}-1.0.dist-info", f"{{NAME}}-1.0-py3-none-any.whl"
    files = {{f"{{NAME}}/__init__.py": b"", f"{{info}}/WHEEL": b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    files[f"{{info}}/METADATA"] = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.0\\n".encode()
    rows = [f"{{path}},," for path in [*files, f"{{info}}/RECORD"]]
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{{info}}/RECORD", "\\n".join(rows) + "\\n")
    return name
"""
SITE = "site = os.path.dirname(metadata.distribution('torch').locate_file('torch'))"


def source(name: str, requires: str, *code: str) -> Wheel:
    """A source distribution that builds itself, with code that runs when it does."""
    body = "".join(f"    {line}\n" for line in code)
    project = f'[build-system]\nrequires = [{requires}]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    about = f'[project]\nname = "{name}"\nversion = "1.0"\n'
    files = {"pyproject.toml": project + about, "backend.py": BACKEND.format(name=name, code=body)}
    return Wheel(name=name, version="1.0", files={path: text.encode() for path, text in files.items()}, as_source=True)


INDEXED: tuple[Wheel, ...] = (
    wheel("torch", "2.13.0", "nvidia-cublas-cu13", "triton==3.8.0"),
    wheel("torch", "2.11.0"),
    wheel("torch", "2.14.0rc1"),
    wheel("torchvision", "0.28.0", "torch==2.13.0"),
    wheel("torchvision", "0.27.0", "torch==2.12.0"),
    wheel("torchaudio", "2.11.0"),
    wheel("torchaudio", "2.13.0", "torch==2.13.0"),
    wheel("triton", "3.8.0"),
    wheel("triton", TRITON),
    wheel("pytorch-triton-rocm", "3.4.0", **{"triton/__init__.py": "", "triton/language.py": ""}),
    wheel("triton-rocm", "3.7.0", **{"triton/__init__.py": ""}),
    wheel("apex", "0.9.10", "zope-interface"),
    wheel("zope-interface", "8.0"),
    wheel("flash-attn", "2.9.0", "torch"),
    wheel("transformer-engine", "2.15.0"),
    wheel("rocm", "0.0.1"),
    wheel("rocm-sdk-core", "8.0.0"),
    wheel("rocm-sdk-libraries", "8.0.0"),
    wheel("amd-aiter", "9.0"),
    wheel("aiter", "9.0", **{"aiter/__init__.py": ""}),
    wheel("amdsmi", "7.0.2"),
    wheel("nvidia-cublas-cu13", "13.2.0.9"),
    wheel("NVIDIA.nccl_cu13", "2.29"),
    wheel("cuda-toolkit", "13.0"),
    wheel("cupy-cuda12x", "14.0"),
    wheel("torchcodec", "0.10.0"),
    wheel("xformers", "0.0.40", "torch==2.13.0"),
    wheel("xformers", "0.0.30"),
    wheel("vllm", "0.30.0", "torch==2.13.0"),
    wheel("vllm", "0.29.0"),
    wheel("megatron-core", "0.17.0"),
    wheel("numpy", "1.26.4"),
    wheel("numpy", "2.5.1"),
    wheel("helper", "1.0"),
    wheel("clean", "1.0", "helper>=1", "torch>=2.0", "numpy"),
    wheel("old-torch", "1.0", "torch==2.11.0"),
    wheel("new-torch", "1.0", "torch>2.12.0"),
    wheel("not-this-torch", "1.0", "torch!=2.12.0"),
    wheel("plain-app", "1.0", "middle"),
    wheel("middle", "1.0", "new-torch"),
    wheel("wants-vision", "1.0", "torchvision>=0.28"),
    wheel("wants-audio", "1.0", "torchaudio"),
    wheel("wants-triton", "1.0", "triton"),
    wheel("wants-other-triton", "1.0", "pytorch-triton-rocm"),
    wheel("wants-cuda", "1.0", "nvidia-cublas-cu13"),
    wheel("wants-vllm", "1.0", "vllm>=0.29"),
    wheel("modern", "1.0", "numpy>=2.5"),
    wheel("pyjwt", "2.15.1"),
    wheel("wants-pyjwt", "1.0", "pyjwt>=2.10"),
    wheel("wants-address", "1.0", f"helper @ {INDEX}/files/helper-1.0-py3-none-any.whl"),
    wheel("wants-torch-address", "1.0", f"torch @ {INDEX}/files/torch-2.13.0-py3-none-any.whl"),
    wheel("amd-quark", "0.12.post1", "numpy>=2", "lacking>=1"),
    wheel("lacking", "1.0"),
    Wheel(name="extras", version="1.0", files={"extras/__init__.py": b""}, extras={"gpu": ["nvidia-cublas-cu13"]}),
    with_files("fast-triton", {"triton/__init__.py": "fast = True\n"}),
    with_files("single-file", {"torch.py": ""}),
    with_files("data-torch", {"data_torch-1.0.data/purelib/torch/version.py": "hip = None\n"}),
    with_files("deep-torch", {f"deep_torch-1.0.data/data/lib/{PYTHON}/site-packages/torch/version.py": "hip = None\n"}),
    with_files("torch-extras", {"torch/backends/extra.py": ""}),
    with_files("other-metadata", {"om.py": "", "torch-2.13.0.egg-info/PKG-INFO": "Name: torch\nVersion: 2.13.0\n"}),
    source("unjudged", "", "pass"),
    source("built", '"torch"', "pass"),
    source("unbuildable", '"no-such-build-tool"', "pass"),
    source("needs_newer", '"torch>2.12.0"', "pass"),
    source("writer", "", SITE, "open(site + '/torch/version.py', 'a').write('# another\\n')"),
    source("remover", "", SITE, "import shutil", f"shutil.rmtree(site + '/triton-{TRITON}.dist-info', ignore_errors=True)"),
    source("renamer", "", SITE, f"old = site + '/triton-{TRITON}.dist-info/METADATA'",
           "text = open(old).read()", "open(old, 'w').write(re.sub('(?m)^Version: .*', 'Version: 3.8.0', text))"),
    source("rewriter", "", SITE, f"old = site + '/torch-{TORCH}.dist-info/RECORD'", "at = os.stat(old)",
           "text = open(old, 'rb').read()", "open(old, 'wb').write(text.replace(b'sha256=', b'sha512='))",
           "os.utime(old, ns=(at.st_atime_ns, at.st_mtime_ns))"),
    source("squatter", "", SITE, "os.makedirs(site + '/fast_triton-1.0.dist-info', exist_ok=True)",
           "open(site + '/fast_triton-1.0.dist-info/METADATA', 'w').write('Name: fast-triton\\nVersion: 1.0\\n')",
           "open(site + '/fast_triton-1.0.dist-info/RECORD', 'w').write('triton/__init__.py,,\\n')"),
    source("guest", "", SITE, "os.makedirs(site + '/guest_of-1.0.dist-info', exist_ok=True)", "open(site + '/torch/more.py', 'w')",
           "open(site + '/guest_of-1.0.dist-info/METADATA', 'w').write('Name: guest-of\\nVersion: 1.0\\n')",
           "open(site + '/guest_of-1.0.dist-info/RECORD', 'w').write('torch/more.py,,\\n')"),
)  # fmt: skip
# Of another index, which a machine's configuration adds.
EXTRAS: tuple[Wheel, ...] = (wheel("torch", "2.13.0"), wheel("helper", "9.0"), wheel("torch", TORCH))
BUILDS = {
    "source_builds": [
        "built",
        "unbuildable",
        "needs_newer",
        "writer",
        "remover",
        "renamer",
        "rewriter",
        "squatter",
        "guest",
    ]
}
VERSION = "torch/version.py"
NO_PLAN = "pip finds no plan"
WHERE = "sources.vllm.requirements"
THERE = f"but the base has torch {TORCH}"

TRAPS: tuple[Trap, ...] = (
    # A requirement that excludes the base's version
    Trap(case="A01", title="a line wants a newer torch", lines="torch>=2.13", by="plan", says=(THERE, WHERE)),
    Trap(case="A04", title="a dependency of a dependency wants a newer torch", lines="plain-app", by="plan",
         says=("new-torch 1.0 asks for torch>2.12.0", "middle 1.0 asks for new-torch", "plain-app 1.0 asks for middle", THERE)),
    Trap(case="A04", title="`torch!=2.12.0` excludes a local version too", lines="not-this-torch", by="plan", says=(THERE,)),
    Trap(case="A21", title="an exact pin of an older torch", lines="old-torch", by="plan", says=(THERE, "old-torch 1.0")),
    Trap(case="A21", title="a package that pins a CUDA torch, forbidden by name too", lines="xformers>=0.0.40", by="plan"),
    Trap(case="A04", title="a dependency wants a newer torchvision", lines="wants-vision", by="plan", says=("torchvision",)),
    Trap(case="A01", title="a line wants a pre-release of torch", lines="torch>=2.14.0rc1", by="plan", says=(THERE,)),
    Trap(case="A19", title="apex of the public index is another project", lines="apex<1", by="plan", says=("apex",)),
    Trap(case="A21", title="a newer flash-attn", lines="flash-attn>=2.9", by="plan", says=("flash-attn",)),
    Trap(case="A21", title="a newer transformer-engine", lines="transformer_engine>2.14.0", by="plan"),
    Trap(case="A19", title="`rocm` of the public index is another project", lines="rocm<1", by="plan"),
    Trap(case="A17", title="a newer aiter by its distribution's name", lines="amd-aiter>=1", by="plan"),
    Trap(case="A04", title="a newer numpy than the manifest holds", lines="modern", by="plan", says=("constraints.numpy",)),
    Trap(case="A12", title="a sealed distribution whose metadata is gone comes again, same version", lines="wants-triton",
         remove=["triton-*.dist-info"], broken=True, by="sealed_name", says=("would replace the sealed triton",)),
    # Names that nothing may bring
    Trap(case="A22", title="nvidia wheels by a dependency", lines="wants-cuda", by="forbidden", says=("nvidia-cublas-cu13",)),
    Trap(case="A22", title="nvidia wheels by an extra", lines="extras[gpu]", by="forbidden", says=("nvidia-cublas-cu13",)),
    Trap(case="A22", title="a forbidden name in another spelling", lines="NVIDIA_nccl.CU13", by="forbidden"),
    Trap(case="A22", title="CUDA itself", lines="cuda-toolkit", by="forbidden"),
    Trap(case="A22", title="a CUDA build by its name", lines="cupy-cuda12x", by="forbidden"),
    Trap(case="A19", title="amdsmi of the public index", lines="amdsmi", by="forbidden", says=("torch count no GPUs",)),
    Trap(case="A21", title="torchcodec, whose wheels are CUDA builds", lines="torchcodec", by="forbidden"),
    Trap(case="A21", title="xformers in a version that pins nothing", lines="xformers<0.0.40", by="forbidden"),
    Trap(case="A22", title="vllm from the index", lines="vllm==0.29.0", by="provided", says=("built here from the source",)),
    Trap(case="A22", title="a newer vllm by a dependency", lines="wants-vllm", by="provided"),
    Trap(case="A14", title="Megatron from the index", lines="megatron-core", by="provided"),
    Trap(case="A16", title="a second triton by its old name", lines="wants-other-triton", by="forbidden"),
    Trap(case="A17", title="a second triton by its other name", lines="triton-rocm", by="forbidden", says=("second owner",)),
    Trap(case="A04", title="torchaudio, which the base lacks and the manifest does not seal", lines="wants-audio",
         remove=["torchaudio*"], optional=["torchaudio"], policy={"sealed": {}}, by="absent_family"),
    Trap(case="A19", title="apex, which the manifest seals and this base lacks", lines="apex", remove=["apex*"],
         optional=["apex"], by="absent_sealed", says=("is sealed as apex", "sealed.apex")),
    Trap(case="A19", title="a new member of ROCm's own family", lines="rocm-sdk-libraries", by="absent_sealed"),
    # A sealed module under another name
    Trap(case="A17", title="aiter under the name of its module", lines="aiter", by="sealed_module", says=("sealed aiter",)),
    Trap(case="A16", title="a stranger that owns the module triton", lines="fast-triton", by="sealed_module"),
    Trap(case="A16", title="a stranger with a file into torch", lines="torch-extras", by="sealed_module"),
    Trap(case="A16", title="a stranger with a torch.py", lines="single-file", by="sealed_module"),
    Trap(case="A16", title="a file of torch through a wheel's purelib", lines="data-torch", by="sealed_module"),
    Trap(case="A16", title="a file of torch through a wheel's data", lines="deep-torch", by="sealed_module"),
    Trap(case="A16", title="metadata of torch in another wheel", lines="other-metadata", by="sealed_module"),
    Trap(case="A12", title="a copy without RECORD that pip cannot replace", lines="wants-pyjwt", by="unrecorded",
         says=("no RECORD", "removed")),
    # Options and addresses
    Trap(case="A03", title="an extra index in the requirement file", lines=f"--extra-index-url {EXTRA}\ntorch>=2.0", by="an_option"),
    Trap(case="A03", title="another index in the requirement file", lines=f"-i {EXTRA}\nhelper", by="an_option"),
    Trap(case="A31", title="a folder of wheels in the requirement file", lines=f"--find-links {INDEX}/files\nhelper", by="an_option"),
    Trap(case="A01", title="pre-releases by the requirement file", lines="--pre\ntorch>=2.13", by="an_option"),
    Trap(case="A15", title="a constraints file in the requirement file", lines="-c other.txt\nhelper", by="an_option"),
    Trap(case="A15", title="an editable line", lines="-e /opt", by="a_path"),
    Trap(case="A14", title="a tree by its path", lines="./vllm", by="a_path"),
    Trap(case="A21", title="torch by its address", lines=f"torch @ {INDEX}/files/torch-2.13.0-py3-none-any.whl", by="a_path"),
    Trap(case="A21", title="torch by the address of its wheel", lines="http://127.0.0.1:9/torch-2.13.0-py3-none-any.whl", by="an_address"),
    Trap(case="A07", title="a repository", lines="thing @ git+http://127.0.0.1:9/thing@main", by="a_repository"),
    Trap(case="A07", title="a wheel that asks for an address", lines="wants-address", by="direct", says=("no index vouches",)),
    Trap(case="A21", title="a wheel that asks for torch by its address", lines="wants-torch-address", by="plan"),
    Trap(case="A04", title="a newer torch on a line that is continued", lines="torch \\\n  >=2.13", by="plan", says=(THERE,)),
    # The base's own configuration of pip
    Trap(case="A03", title="an extra index by a variable", lines="clean", environment={"PIP_EXTRA_INDEX_URL": EXTRA}, by="reopening",
         says=("extra-index-url", "clean 1.0 asks for torch>=2.0")),
    Trap(case="A02", title="an extra index by pip.conf, and the newest of everything", lines="torch",
         configuration=f"extra-index-url = {EXTRA}\nupgrade = true\n", by="reopening"),
    Trap(case="A09", title="reinstalling by a variable", lines="clean", environment={"PIP_FORCE_REINSTALL": "1"}, by="reopening"),
    Trap(case="A29", title="ignoring what is installed, by a variable", lines="clean", environment={"PIP_IGNORE_INSTALLED": "1"},
         by="reopening", says=("ignore-installed", "ignored_pip_options.ignore-installed")),
    Trap(case="A01", title="the newest of everything by a variable", lines="torch", environment={"PIP_UPGRADE": "1"}),
    Trap(case="A08", title="another constraint by a variable", lines="torch", environment={"PIP_CONSTRAINT": "@ROOT@/other.txt"}),
    Trap(case="A28", title="a quiet pip and a dependency on nvidia", lines="wants-cuda", environment={"PIP_QUIET": "3"}, by="forbidden"),
    Trap(case="A28", title="a quiet pip and a newer torch", lines="new-torch", environment={"PIP_QUIET": "3"}, by="plan"),
    Trap(case="A23", title="an index of uv's", lines="clean", environment={"UV_INDEX": EXTRA}),
    # Builds from source
    Trap(case="A28", title="an undeclared source distribution, whose code a dry run would run", lines="unjudged", by="plan"),
    Trap(case="A07", title="a build that asks for torch sees the base's", lines="built", policy=BUILDS, says=(f"torch {TORCH}",)),
    Trap(case="A07", title="a build whose requirements are not there", lines="unbuildable", policy=BUILDS, by="plan"),
    Trap(case="A07", title="a build that asks for a newer torch", lines="needs_newer", policy=BUILDS, by="plan"),
    Trap(case="A07", title="a build that writes into torch", lines="writer", policy=BUILDS, by="changed_files"),
    Trap(case="A25", title="a build that removes triton's metadata", lines="remover", policy=BUILDS, by="replaced"),
    Trap(case="A01", title="a build that gives triton another version", lines="renamer", policy=BUILDS, by="replaced"),
    Trap(case="A12", title="a build that rewrites a RECORD within the second", lines="rewriter", policy=BUILDS, by="changed_record"),
    Trap(case="A16", title="a build that leaves a second owner behind", lines="squatter", policy=BUILDS, by="second_owners"),
    Trap(case="A16", title="a build that leaves a file in torch", lines="guest", policy=BUILDS, by="new_guests"),
    # Overrides
    Trap(case="A26", title="an override that lacks what nobody waived", lines="amd-quark", by="unmet", says=("lacking>=1", "pip_check.amd-quark"),
         policy={"overrides": {"amd-quark": {"version": "0.12.post1", "where": "overrides.amd-quark", "waived": {"numpy": "pip_check.amd-quark.numpy"}}}},
         remove=["numpy*"]),
    # A base that is broken before anything is added
    Trap(case="A01", title="a base whose torch is no ROCm build", lines="helper", write={VERSION: "cuda = None\n"}, by="no_hip"),
    Trap(case="A01", title="a base whose torch is a CUDA build", lines="helper", write={VERSION: "hip = '7.14'\ncuda = '13.0'\n"}, by="cuda_fields"),
    Trap(case="A01", title="a base whose torchvision is the public index's", lines="helper", by="other_version",
         write={"torchvision/version.py": "__version__ = '0.27.0+cu130'\n"}),
    Trap(case="A01", title="a base whose torchvision is for another ROCm", lines="helper", by="other_hip",
         write={"torchvision/version.py": "hip = '7.2.1'\n"}),
    Trap(case="A12", title="a base whose torch lacks what it requires", lines="helper", remove=["triton*"], optional=["triton"],
         by="unmet_requirements", says=("requires triton==",)),
    Trap(case="A16", title="a base with two tritons", lines="helper", by="second_owners",
         write={"triton_rocm-3.7.0.dist-info/METADATA": "Name: triton-rocm\nVersion: 3.7.0\n", "triton_rocm-3.7.0.dist-info/RECORD": "triton/__init__.py,,\n"}),
    Trap(case="A17", title="a base whose aiter has no metadata", lines="helper", by="provider", remove=["amd_aiter-*.dist-info"]),
    # What must pass
    Trap(case="", title="a clean list", lines="clean\nhelper>=1 # for a reason\n"),
    Trap(case="", title="what the base has already", lines="torch>=2.0\ntorchvision\ntriton\n"),
    Trap(case="", title="`<=`, `~=` and `==` accept a local version", lines="torch<=2.12.0\ntorch~=2.12.0\ntorch==2.12.*\ntorch==2.12.0\n"),
    Trap(case="", title="an extra index where no sealed name can be resolved", lines="helper", environment={"PIP_EXTRA_INDEX_URL": EXTRA}),
)  # fmt: skip
