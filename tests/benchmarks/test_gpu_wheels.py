"""Which wheels are brought to a machine without network, and how they are installed there."""

import pathlib
import subprocess
import sys
import zipfile

from benchmarks.gpu.wheels import choose_wheels, download_all, install, link_libraries, read_installed

ROOT = pathlib.Path(__file__).parents[2]


def make_wheel(folder, name, text, requires=()):
    """A wheel of one module, of the least that pip installs."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(f"Requires-Dist: {line}\n" for line in requires),
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_wheels_are_installed_into_a_folder_of_their_own(tmp_path, capsys):
    for name in ("first", "other"):
        make_wheel(tmp_path / "wheels", name, f"VALUE = {name!r}\n")
    assert install(tmp_path / "wheels", tmp_path / "site") == 0
    assert f"export PYTHONPATH={tmp_path / 'site'}" in capsys.readouterr().out
    command = [sys.executable, "-c", "import first, other; print(first.VALUE, other.VALUE)"]
    shown = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "first other\n"


def test_a_list_of_packages_is_read_with_and_without_versions():
    text = "# a comment\nnumpy==2.5.2\nPyYAML\nonnx @ file:///wheels/onnx.whl\ntyping_extensions==4.15.0  # pinned\ntorch==2.11.0+cu130\n\n-e .\n"
    expected = {"numpy": "2.5.2", "pyyaml": None, "onnx": None, "typing-extensions": "4.15.0", "torch": "2.11.0+cu130"}
    assert read_installed(text) == expected


def test_what_is_missing_or_too_old_is_brought_and_development_tools_are_not():
    wheels = [{"name": name} for name in ("hpack", "numpy", "pandas", "onnxruntime-gpu", "mypy", "types-pyyaml", "scipy")]
    requirements = ["numpy>=2.0", "pandas>=2.2", "onnxruntime-gpu[cuda,cudnn]>=1.28", "scipy>=1.14"]
    chosen = choose_wheels(wheels, requirements, {"numpy": "1.26.4", "pandas": "3.0", "onnxruntime": "1.30.0", "scipy": None})
    assert [wheel["name"] for wheel in chosen] == ["hpack", "numpy", "onnxruntime-gpu"]


def test_what_a_downloaded_wheel_does_not_accept_is_brought_too(tmp_path):
    requires = {
        "pydantic": ["core==1.0", "typing>=4.14", "stable>=2", "other>=9; python_version < '3.12'", "email>=2; extra == 'email'"],
        "core": ["extensions>=3; extra == 'cuda'"],
    }
    wheels = [
        {"name": name, "file": f"{name}-1.0-py3-none-any.whl"}
        for name in ("pydantic", "core", "typing", "stable", "other", "email", "extensions")
    ]
    installed = {"core": "0.9", "typing": None, "stable": "2.0", "other": "1.0", "email": "1.0", "extensions": "2.0"}
    steps = []

    def download(missing):
        steps.append([wheel["name"] for wheel in missing])
        for wheel in missing:
            make_wheel(tmp_path, wheel["name"], "", requires.get(wheel["name"], ()))

    download_all({"wheels": wheels, "requirements": ["pydantic>=2.10"]}, "3.12", installed, tmp_path, download)
    assert steps == [["pydantic"], ["core"], ["extensions"]]


def test_on_the_machine_without_network_only_the_standard_library_is_needed(tmp_path):
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks.gpu import wheels; sys.exit(wheels.main())"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", program, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_installed_cuda_libraries_are_linked_beside_onnx_runtime_and_own_ones_stay(tmp_path):
    package, site = tmp_path / "nvidia", tmp_path / "site"
    for library in ("cu13/lib/libcublas.so.13", "cu13/lib/libcufft.so.12", "cudnn/lib/libcudnn.so.9", "cu13/include/cublas.h"):
        (package / library).parent.mkdir(parents=True, exist_ok=True)
        (package / library).write_text("installed")
    own = site / "nvidia" / "cu13" / "lib" / "libcufft.so.12"
    own.parent.mkdir(parents=True)
    own.write_text("brought")
    assert link_libraries([package], site) == 2
    assert (own.parent / "libcublas.so.13").read_text() == (site / "nvidia/cudnn/lib/libcudnn.so.9").read_text() == "installed"
    assert own.read_text() == "brought"
    assert link_libraries([package], site) == 0
