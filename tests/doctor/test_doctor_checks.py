"""`neomx doctor`: each check on this machine and on simulated machines, with one finding per fault."""

import collections
import importlib.util
import os
import pathlib
import re
import resource
import socket
import sys
import threading

import pytest
from doctoring import KERNEL, TORCH, by_name, documented, engine
from launching import ROOT

try:
    import tomllib
except ImportError:  # Python 3.10, where pytest provides it
    import tomli as tomllib

from neomx import onednn
from neomx.doctor import cgroup, cpu, devices, environment, limits, network, software
from neomx.doctor.command import lines, report, worst
from neomx.doctor.engine import examine
from neomx.doctor.finding import Check, Finding, amount
from neomx.process import state

# ---- the runner ----


def test_exception_becomes_an_additional_finding():
    def broken():
        yield Finding("cpu.torch", "ok", "before")
        raise OSError("no such\nthing")

    first, second = Check("cpu", broken).findings()
    assert (first.check, second.check, second.status) == ("cpu.torch", "cpu.error", "problem")
    assert second.finding == "the check failed: OSError: no such thing" and second.remedy


def test_check_that_hangs_becomes_a_finding():
    release = threading.Event()

    def hanging():
        yield Finding("cpu.torch", "ok", "before")
        release.wait()

    findings = Check("cpu", hanging, seconds=0.2).findings()
    release.set()
    assert [finding.check for finding in findings] == ["cpu.torch", "cpu.timeout"]
    assert findings[1].status == "problem" and "0.2 s" in findings[1].finding


def test_report_has_the_worst_status_and_remedies():
    fine, odd, bad = (Finding("cpu.torch", status, f"it is {status}", "do it") for status in ("ok", "warn", "problem"))
    assert [worst(each) for each in ([fine], [fine, odd], [odd, bad, fine], [])] == ["ok", "warn", "problem", "ok"]
    said = report([fine, bad])
    assert (said["format"], said["status"], len(said["findings"])) == (1, "problem", 2)
    assert said["findings"][1] == {
        "check": "cpu.torch", "status": "problem", "finding": "it is problem", "remedy": "do it", "values": {}
    }  # fmt: skip
    shown = list(lines([fine, bad]))
    assert shown[:3] == ["cpu", "  ok       it is ok", "           -> do it"]
    assert shown[-1] == "1 problem, 0 warnings, 1 ok"


def test_amounts_are_readable():
    assert [amount(n) for n in (0, 1023, 1 << 20, 3 << 29, 1 << 41)] == [
        "0 bytes", "1023 bytes", "1 MiB", "1.5 GiB", "2 TiB"
    ]  # fmt: skip


# ---- software ----


def extras():
    with open(pathlib.Path(ROOT, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)["project"]["optional-dependencies"]


def test_every_extra_of_the_package_is_checked():
    assert set(software.EXTRAS) == set(extras()) - {"dev", "docs"}  # those are for development of neomx
    found = by_name(software.check())
    assert {f"software.extra.{name}" for name in software.EXTRAS} <= set(found)
    assert found["software.python"].values["executable"] == sys.executable
    assert found["software.torch"].status == found["software.numpy"].status == "ok"


def test_missing_extra_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = by_name(software.check())
    for name in software.EXTRAS:
        finding = found[f"software.extra.{name}"]
        assert (finding.status, finding.remedy) == ("ok", f'pip install "neomx[{name}]"')
        assert not finding.values["installed"]


def test_incomplete_and_old_extras_are_warnings(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    monkeypatch.setattr(software, "requirements", lambda: {"": {"torch": "99"}, "scipy": {"scipy": "99.1"}})
    monkeypatch.setattr(software, "version_of", {"torch": "2.13.0", "scipy": "1.15.0"}.get)
    found = by_name(software.check())
    assert found["software.extra.onnx"].status == "warn" and "onnxscript" in found["software.extra.onnx"].finding
    assert found["software.extra.scipy"].remedy == 'pip install --upgrade "neomx[scipy]"'
    assert (found["software.torch"].status, found["software.torch"].remedy) == (
        "problem", 'pip install --upgrade "torch>=99"'
    )  # fmt: skip


def test_missing_package_is_a_problem(monkeypatch):
    monkeypatch.setattr(software, "requirements", dict)
    monkeypatch.setattr(software, "version_of", lambda package: None)
    found = by_name(software.check())
    assert (found["software.torch"].status, found["software.torch"].remedy) == ("problem", 'pip install "torch"')


def test_requirements_are_read_from_metadata(monkeypatch):
    listed = ["torch>=2.13", "numpy>=1.26", 'onnx>=1.17; extra == "onnx"', "a-b.c ; extra == 'dev'", "plain"]
    listed += ['mkdocs<2,>=1.6; extra == "docs"', 'x[y]!=3 ; python_version > "3" and extra == "docs"']
    monkeypatch.setattr(software.importlib.metadata, "requires", lambda name: listed)
    assert software.requirements() == {
        "": {"torch": "2.13", "numpy": "1.26", "plain": ""}, "onnx": {"onnx": "1.17"}, "dev": {"a-b.c": ""},
        "docs": {"mkdocs": "1.6", "x": ""},
    }  # fmt: skip


@pytest.mark.parametrize(
    "version, least, older",
    [("2.13.0+cpu", "2.13", False), ("2.9.1", "2.13", True), ("3", "2.13", False), ("2.13", "2.13.1", True)],
)
def test_versions_are_compared_numerically(version, least, older):
    assert software.is_older(version, least) is older


# ---- cgroups ----


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_smallest_limit_of_ancestors_counts_in_cgroup_v2(tmp_path):
    tree(tmp_path, {
        "self": "0::/slice/job\n",
        "cg/slice/cpu.max": "150000 100000\n", "cg/slice/job/cpu.max": "max 100000\n",
        "cg/slice/memory.max": "max\n", "cg/slice/job/memory.max": "1073741824\n",
    })  # fmt: skip
    assert cgroup.limits(str(tmp_path / "self"), str(tmp_path / "cg")) == (1.5, 1 << 30)


def test_limits_in_cgroup_v1(tmp_path):
    tree(tmp_path, {
        "self": "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n",
        "cg/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cg/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "cg/memory/docker/x/memory.limit_in_bytes": "2048\n",
    })  # fmt: skip
    assert cgroup.limits(str(tmp_path / "self"), str(tmp_path / "cg")) == (0.5, 2048)


def test_no_limits_without_cgroups(tmp_path):
    assert cgroup.limits(str(tmp_path / "none"), str(tmp_path)) == (None, None)
    tree(tmp_path, {"self": "0::/\n1:cpu:/\nnonsense\n", "cg/cpu.max": "max 100000\n"})
    assert cgroup.limits(str(tmp_path / "self"), str(tmp_path / "cg")) == (None, None)


# ---- the CPU ----

CPUINFO = "processor : 0\nmodel name : A CPU\ncpuid level : {level}\nflags : fpu avx avx2 fma {more}\n"


def features(tmp_path, level="32", more=""):
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO.format(level=level, more=more))
    return by_name(cpu.check(engine(TORCH, KERNEL), str(path)))["cpu.features"]


def test_features_are_listed(tmp_path):
    found = features(tmp_path, more="avx512f amx_tile")
    assert found.status == "ok"
    assert found.values["features"] == ["avx", "fma", "avx2", "avx512f", "amx_tile"]
    assert not found.values["hides_amx_tiles"]


@pytest.mark.parametrize("limited", [True, False])
def test_hidden_amx_tiles_are_a_warning_with_the_variable_to_set(tmp_path, monkeypatch, limited):
    monkeypatch.setattr(state, "onednn_limited", limited)
    found = features(tmp_path, level="16", more="amx_tile")
    assert found.status == "warn" and found.values["hides_amx_tiles"]
    assert f"{onednn.VARIABLE}={onednn.WITHOUT_AMX}" in found.remedy


def test_kernel_that_fails_or_is_wrong_is_a_problem():
    wrong = {"kernel": "bfloat16 matrix product", "distance": 0.5, "error": ""}
    raised = {"kernel": "float16 convolution", "distance": None, "error": "RuntimeError: could not create a primitive"}
    found = by_name(cpu.check(engine(TORCH, KERNEL, wrong, raised)))["cpu.kernels"]
    assert found.status == "problem" and onednn.VARIABLE in found.remedy
    assert found.values == {
        "working": ["float32 matrix product"],
        "failing": {wrong["kernel"]: "wrong result", raised["kernel"]: raised["error"]},
    }


def test_finding_names_kernel_that_kills_the_process():
    tried = engine(TORCH, KERNEL, {"trying": "bfloat16 matrix product"}, failure="was killed by SIGILL")
    found = by_name(cpu.check(tried))["cpu.kernels"]
    assert found.values["failing"] == {"bfloat16 matrix product": "the process was killed by SIGILL"}


def test_torch_that_cannot_be_imported_is_a_problem_and_has_no_kernels():
    found = by_name(
        cpu.check(engine({"trying": "import torch"}, failure="failed with exit code 1", output="No module"))
    )
    assert found["cpu.torch"].status == "problem" and "import torch" in found["cpu.torch"].finding
    assert "No module" in found["cpu.torch"].remedy and "cpu.kernels" not in found
    assert by_name(cpu.check(engine(TORCH | {"onednn": False})))["cpu.torch"].status == "warn"


def test_more_threads_than_the_quota_allows_are_a_warning(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)), raising=False)
    monkeypatch.setattr(cgroup, "limits", lambda: (1.5, None))
    found = by_name(cpu.check(engine(TORCH | {"threads": 4})))["cpu.threads"]
    assert found.status == "warn" and "OMP_NUM_THREADS=1" in found.remedy
    assert found.values == {"total": 8, "usable": 4, "quota": 1.5, "torch_threads": 4}
    assert by_name(cpu.check(engine(TORCH | {"threads": 1})))["cpu.threads"].status == "ok"
    monkeypatch.setattr(cgroup, "limits", lambda: (None, None))
    assert by_name(cpu.check(engine(TORCH | {"threads": 4})))["cpu.threads"].status == "ok"


# ---- torch, in a separate process ----


def script(text):
    return [sys.executable, "-S", "-c", text]


def test_output_of_a_killed_trial_is_kept():
    dying = """
import os, signal
print('{"trying": "import torch"}')
print('no json')
print('[1]')
print('{"trying": "a kernel"}', flush=True)
os.kill(os.getpid(), signal.SIGILL)
"""
    found = examine(script(dying))
    assert found.failure == "was killed by SIGILL" and found.trying == "a kernel"
    assert found.lines == [{"trying": "import torch"}, {"trying": "a kernel"}]


def test_hanging_trial_is_stopped():
    found = examine(script('import time; print(\'{"trying": "it"}\', flush=True); time.sleep(3600)'), seconds=2)
    assert "within 2 s" in found.failure


def test_failed_trial_is_reported_not_raised():
    found = examine(script("import sys; sys.exit('no torch here')"))
    assert (found.failure, found.output, found.trying) == (
        "failed with exit code 1",
        "no torch here",
        "starting Python",
    )
    assert "could not be started" in examine(["/no/such/python"]).failure


# ---- devices ----

DEVICE = {"device": 0, "name": "A GPU", "free": 9 << 30, "total": 10 << 30, "trying": "cuda:0"}
ONE = {"accelerator": "cuda", "devices": 1}


def test_device_is_listed_with_its_memory():
    found = by_name(devices.check(engine(TORCH, ONE, DEVICE, KERNEL | {"kernel": "float32 matrix product on cuda:0"})))
    assert found["devices.accelerator"].status == found["devices.cuda.0"].status == "ok"
    assert "9 GiB free of 10 GiB" in found["devices.cuda.0"].finding


def test_full_and_failing_devices_are_reported():
    full = by_name(devices.check(engine(TORCH, ONE, DEVICE | {"free": 1 << 20})))["devices.cuda.0"]
    assert full.status == "warn" and "almost full" in full.finding
    kernel = {"kernel": "float32 matrix product on cuda:0", "distance": None, "error": "RuntimeError: no kernel image"}
    broken = by_name(devices.check(engine(TORCH, ONE, DEVICE, kernel)))["devices.cuda.0"]
    assert broken.status == "problem" and "no kernel image" in broken.finding
    tried = engine(TORCH, ONE, DEVICE, {"trying": kernel["kernel"]}, failure="was killed by SIGSEGV")
    assert by_name(devices.check(tried))["devices.cuda.0"].status == "problem"
    asked = engine(TORCH, {"trying": "accelerator"}, failure="did not finish within 90 s")
    assert by_name(devices.check(asked))["devices.accelerator"].status == "problem"
    assert list(devices.check(engine())) == []  # torch cannot be imported: cpu.torch reports it


def test_gpu_that_torch_cannot_use_is_a_warning(tmp_path):
    none = engine(TORCH, {"accelerator": None, "devices": 0})
    assert by_name(devices.check(none, {}))["devices.accelerator"].status == "ok"
    found = by_name(devices.check(none, {str(tmp_path): "a GPU"}))["devices.accelerator"]
    assert found.status == "warn" and "a GPU" in found.finding


# ---- limits ----


def test_limits_of_this_machine_are_found():
    found = by_name(limits.check())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["limits.files"].values["hard"] == (None if hard < 0 else hard)
    assert 0 < found["limits.memory"].values["available"] <= found["limits.memory"].values["total"]
    assert found["limits.shared_memory"].values["works"] is True


def test_small_limits_are_warnings(monkeypatch):
    room = collections.namedtuple("Room", "f_bavail f_blocks f_frsize")(100, 16384, 4096)
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 1024))
    monkeypatch.setattr(cgroup, "limits", lambda: (None, 1 << 28))
    found = by_name(limits.check())
    assert {name for name, finding in found.items() if finding.status == "warn"} == {
        "limits.files", "limits.memory", "limits.dev_shm"
    }  # fmt: skip
    assert found["limits.dev_shm"].values == {"free": 409600, "total": 64 << 20}
    assert "--shm-size" in found["limits.dev_shm"].remedy


def test_memory_that_cannot_be_shared_is_a_warning(monkeypatch):
    def refuse(name):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    found = by_name(limits.check())["limits.shared_memory"]
    assert found.status == "warn" and "Operation not permitted" in found.finding
    monkeypatch.delattr(os, "memfd_create")
    assert by_name(limits.check())["limits.shared_memory"].status == "warn"


# ---- network ----


def test_interfaces_are_those_of_the_system():
    found = network.interfaces()
    assert {interface.name for interface in found} == {name for _, name in socket.if_nameindex()}
    (loopback,) = [interface for interface in found if "127.0.0.1" in interface.addresses]
    assert loopback.loopback and loopback.up


def test_address_of_a_job_belongs_to_an_interface():
    found = by_name(network.check({}, ["localhost"]))
    assert found["network.job"].values["address"] == "127.0.0.1"
    assert found["network.job"].values["interface"] == found["network.job"].values["gloo_interface"] != ""


@pytest.mark.parametrize(
    "environ, words",
    [
        ({"GLOO_SOCKET_IFNAME": "nosuch0"}, "is not an interface"),
        ({"NEOMX_HOST": "203.0.113.9"}, "not an address of this"),
    ],
)
def test_variables_with_unknown_interface_are_problems(environ, words):
    found = by_name(network.check(environ, []))["network.job"]
    assert found.status == "problem" and words in found.finding


def test_job_address_follows_the_launchers_variables():
    for environ in ({"NEOMX_STORE": "127.0.0.1:4"}, {"MASTER_ADDR": "127.0.0.1"}, {"DMLC_PS_ROOT_URI": "127.0.0.1"}):
        assert by_name(network.check(environ, []))["network.job"].values["towards"] == "127.0.0.1"


def test_own_name_that_does_not_resolve_is_a_warning(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    found = by_name(network.check({"NEOMX_HOST": "127.0.0.1"}, []))
    assert found["network.host_name"].status == "warn" and "/etc/hosts" in found["network.host_name"].remedy


# ---- environment ----

HIDDEN = "correct-horse-battery-staple"


def test_values_of_secrets_are_never_shown():
    environ = {
        "NEOMX_SECRET": HIDDEN, "NEOMX_SECRE": HIDDEN, "NEOMX_SINK_BOARD": HIDDEN, "MXNET_TOKEN": HIDDEN,
        "DMLC_PASSWORD": HIDDEN, "MXNET_GLUON_REPO": f"https://me:{HIDDEN}@host/path", "RANK": "0", "WORLD_SIZE": "1",
    }  # fmt: skip
    found = by_name(environment.check(environ))
    assert HIDDEN not in str(found)
    assert f"{len(HIDDEN)} bytes" in found["environment.NEOMX_SECRET"].finding
    assert "//***@host/path" in found["environment.MXNET_GLUON_REPO"].finding
    assert HIDDEN not in str(by_name(environment.check({"NEOMX_SECRET": HIDDEN[:5], "RANK": "0"})))


def test_every_variable_that_neomx_reads_has_a_meaning():
    package = pathlib.Path(ROOT, "neomx")
    texts = [path.read_text() for path in package.rglob("*.py") if path != pathlib.Path(environment.__file__)]
    read = {name for text in texts for name in re.findall(r'"((?:NEOMX|MXNET|DMLC)_[A-Z_0-9]*[A-Z0-9])"', text)}
    assert len(read) > 20 and read - environment.MEANING.keys() == set()


@pytest.mark.parametrize(
    "name, value",
    [
        ("NEOMX_SECRET", "short"),
        ("NEOMX_SILENCE", "soon"),
        ("NEOMX_TIMEOUT", "soon"),
        ("NEOMX_TLS", "/no/such.pem"),
        ("OMP_NUM_THREADS", "many"),
        ("NEOMX_MAX_PIXELS", "0"),
    ],
)
def test_invalid_values_are_problems(name, value):
    found = by_name(environment.check({name: value}))[f"environment.{name}"]
    assert found.status == "problem" and f"unset {name}" in found.remedy


def test_misspelled_variable_is_a_warning_and_unused_ones_are_listed():
    found = by_name(environment.check({"NEOMX_TIMEOT": "5", "MXNET_CPU_WORKER_NTHREADS": "4"}))
    assert found["environment.NEOMX_TIMEOT"].remedy == "Did you mean NEOMX_TIMEOUT?"
    assert "no effect" in found["environment.MXNET_CPU_WORKER_NTHREADS"].finding
    assert by_name(environment.check({"NEOMX_INSECURE": "1"}))["environment.NEOMX_INSECURE"].status == "warn"
    assert list(by_name(environment.check({"PATH": "/bin"}))) == ["environment.variables"]
    assert by_name(environment.check({"OMP_NUM_THREADS": "4,2"}))["environment.OMP_NUM_THREADS"].status == "ok"


def test_leftover_variables_of_a_job_are_reported():
    half = by_name(environment.check({"WORLD_SIZE": "2"}))["environment.job"]
    assert half.status == "problem" and "WORLD_SIZE=2" in half.finding
    whole = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4", "NEOMX_SECRET": "x" * 16}
    found = by_name(environment.check(whole))["environment.job"]
    assert found.status == "warn" and (found.values["rank"], found.values["size"]) == (1, 2)
    alone = by_name(environment.check(whole | {"RANK": "0", "WORLD_SIZE": "1"}))["environment.job"]
    assert alone.status == "ok"


def test_all_documented_checks_exist():
    table = documented()
    assert len(table) > 25 and r"devices\.\w+\.\w+" in table and r"limits\.files" in table
