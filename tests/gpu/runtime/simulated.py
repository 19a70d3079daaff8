"""A simulated GPU host: what HIP would do in this process. The rules and the host come from one JSON file."""

import ctypes
import hashlib
import json
import os
import re
import time
from pathlib import Path

HOST = json.loads(Path(os.environ["SIMULATED_HOST"]).read_text())
RULES, MEMORY = HOST["rules"], Path(os.environ["SIMULATED_HOST"]).parent
TOTAL = 192 * 2**30
order = []  # of the imports that matter


class HipError(RuntimeError):
    def __init__(self, name):
        super().__init__(f"HIP error: {name}\nthis and further lines are torch's advice")


def uuid(gpu):
    return f"GPU-{gpu:016x}"


def named(word, there):
    """The GPU that a word of a mask names, or None."""
    if word.startswith("GPU-"):
        known = [gpu for gpu in there if uuid(gpu) == word]
        return known[0] if known and RULES["uuid_in_a_mask"] == "names a GPU" else None
    return there[int(word)] if word.isdecimal() and word == str(int(word)) and int(word) < len(there) else None


def listed(text, there):
    """A mask's GPUs among those that are there."""
    found = []
    for word in text.split(","):
        gpu = named(word, there)
        if gpu is None and RULES["invalid_ordinal_in_a_mask"] == "ends the list":
            break
        if gpu is not None and gpu not in found:
            found.append(gpu)
    return found


def visible():
    """The GPUs of this process, by their number in the node."""
    found = list(range(HOST["gpus"]))
    rocr = os.environ.get("ROCR_VISIBLE_DEVICES")
    if RULES["rocr_masks"] == "before HIP" and (rocr or rocr == "" and RULES["blank_rocr_mask"] == "hides every GPU"):
        found = listed(rocr.replace(" ", ""), found)
    if RULES["gpu_device_ordinal"] != "is for OpenCL alone" and "GPU_DEVICE_ORDINAL" in os.environ:
        found = listed(os.environ["GPU_DEVICE_ORDINAL"], found)
    mask = os.environ.get("HIP_VISIBLE_DEVICES", "")
    if not mask and RULES["cuda_mask_on_hip"] == "is HIP's where HIP has none":
        mask = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return listed(mask, found) if mask else found


def counted():
    """What torch.cuda.device_count() says: amd_smi's count, under torch's own reading of the masks."""
    if HOST.get("second_amd_smi") and RULES["second_copy_of_amd_smi"] != "is harmless" and order[:1] != ["amdsmi"]:
        return 0
    hip, rocr = (os.environ.get(name) for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))
    if rocr is not None and hip is None:
        return min(len(rocr.split(",")), HOST["gpus"]) if RULES["torch_reads_rocr_mask"] == "by its length" else len(visible())
    mask = os.environ.get("CUDA_VISIBLE_DEVICES") if hip is None else hip
    if mask is None or mask == "" and RULES["blank_mask_to_torch"] == "is no mask":
        return HOST["gpus"]
    if RULES["uuids_and_numbers"] != "torch stops where the kind changes" and "GPU-" in mask:
        return len(visible())
    found = []
    for word in mask.split(","):
        if mask.startswith("GPU-"):
            known = [gpu for gpu in range(HOST["gpus"]) if uuid(gpu) == word]
            gpu = known[0] if known else -1
        else:
            number = re.match(r"[+-]?\d+", word.strip())
            gpu = int(number[0]) if number else -1
        if gpu in found:
            return 0 if RULES["repeated_gpu_to_torch"] == "is no GPU at all" else len(visible())
        if not 0 <= gpu < HOST["gpus"]:
            break
        found.append(gpu)
    return len(found)


def log(what):
    with (MEMORY / "log").open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


def hang():
    time.sleep(600)


def faulty(gpu):
    return HOST.get("faults", {}).get(str(gpu))


def legacy():
    set_to = os.environ.get("HSA_ENABLE_IPC_MODE_LEGACY")
    return RULES["legacy_ipc_unset"] == "is legacy" if set_to is None else set_to != "0"


def ipc_handle(ordinal, values):
    if HOST.get("ipc") == "hangs":
        hang()
    gpu = visible()[ordinal]
    rdna = not HOST["target"].startswith("gfx9")
    if legacy() and rdna and RULES["legacy_ipc_on_rdna"] != "works":
        raise HipError("invalid argument")
    if HOST.get("ipc") == "none" or HOST.get("ipc") == ("new" if legacy() else "legacy"):
        raise HipError("invalid argument")
    place = hashlib.sha256(f"{os.getpid()} {gpu} {values[:9]}".encode()).hexdigest()
    (MEMORY / place).write_text(json.dumps(values))
    (MEMORY / f"{os.getpid()}-{gpu}").write_text(place)
    return {"place": place, "gpu": gpu, "ordinal": ordinal, "process": os.getpid()}


def ipc_open(handle):
    """Step by step as hipIpcOpenMemHandle."""
    own = RULES["handle_in_its_own_process"]
    if handle["process"] == os.getpid() or own.endswith("every process"):
        raise HipError("invalid device context")
    if HOST.get("ipc") == "cannot attach":
        raise HipError("invalid device pointer")
    seen = visible()
    ordinal = handle["ordinal"] if RULES["handle_carries"] == "the exporter's ordinal" else 0
    place = handle["place"]
    table = seen if RULES["ordinal_is_looked_up_in"] == "the importer's enumeration" else range(HOST["gpus"])
    if ordinal >= len(table):
        if RULES["ordinal_out_of_range"] == "hipErrorInvalidValue":
            raise HipError("invalid argument")
        ordinal = 0
    if RULES["mapping_leads_to"] != "the exporter's memory" or HOST.get("ipc") == "elsewhere":
        other = MEMORY / f"{handle['process']}-{table[ordinal]}"
        if not other.exists():
            return [0] * 1024
        place = other.read_text()
    return json.loads((MEMORY / place).read_text())


class Library:
    """libamdhip64.so, as ctypes would have it."""

    @staticmethod
    def hipGetDeviceCount(number):
        number._obj.value = len(visible())
        return 0 if visible() else 100


real = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **more: Library if "libamdhip64" in str(name) else real(name, *rest, **more)
