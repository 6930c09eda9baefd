"""Wheels cut into pieces and put together: what arrives is what was cut, and what does not is named."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.pieces import PiecesError, faults, join, read_manifest, split
from benchmarks.gpu.wheels import choose_wheels, download_all, link_libraries, main, read_installed

ROOT = pathlib.Path(__file__).parents[2]
NUMBERS = bytes(range(256)) * 10


def write(folder, **files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return sorted(folder.iterdir())


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


@given(sizes=st.lists(st.integers(0, 70), min_size=1, max_size=6), limit=st.integers(1, 40))
def test_every_file_comes_back_from_pieces_within_the_limit(tmp_path_factory, sizes, limit):
    folder = tmp_path_factory.mktemp("pieces")
    contents = {f"{number}.whl": NUMBERS[number : number + size] for number, size in enumerate(sizes)}
    split(write(folder / "files", **contents), folder / "pieces", limit)
    if all(size > limit for size in sizes):  # then the pieces are full
        assert len(list((folder / "pieces").iterdir())) == -(-sum(sizes) // limit)
    for piece in (folder / "pieces").iterdir():
        assert sum(path.stat().st_size for path in piece.iterdir() if path.name != "manifest.json") <= limit
    back = {file.name: join(file, folder / "pieces", folder / "joined").read_bytes() for file in read_manifest(folder / "pieces")}
    assert back == contents


def test_a_large_file_is_cut_after_the_small_ones_and_each_part_has_its_sum(tmp_path):
    split(write(tmp_path / "files", large=NUMBERS[:100], small=b"abc", second=b"defg"), tmp_path / "pieces", 40)
    small, second, large = read_manifest(tmp_path / "pieces")
    assert [part.path for part in (*small.parts, *second.parts)] == ["01/small", "01/second"]
    assert [(part.path, part.size_bytes) for part in large.parts] == [
        ("01/large.part1", 33),
        ("02/large.part2", 40),
        ("03/large.part3", 27),
    ]
    assert large.parts[1].sha256 == hashlib.sha256(NUMBERS[33:73]).hexdigest()
    assert large.sha256 == hashlib.sha256(NUMBERS[:100]).hexdigest()


def test_pieces_that_are_missing_short_or_changed_are_named(tmp_path):
    split(write(tmp_path / "files", large=NUMBERS[:100]), tmp_path / "pieces", 30)
    shutil.rmtree(tmp_path / "pieces" / "01")
    (tmp_path / "pieces" / "02" / "large.part2").write_bytes(b"short")
    (tmp_path / "pieces" / "03" / "large.part3").write_bytes(b"x" * 30)
    (file,) = read_manifest(tmp_path / "pieces")
    assert list(faults(file, tmp_path / "pieces")) == [
        "01/large.part1 is missing",
        "02/large.part2 has 5 bytes instead of 30",
        "03/large.part3 has another SHA-256 than in manifest.json",
    ]


def test_pieces_of_two_sets_in_one_folder_are_refused(tmp_path):
    split(write(tmp_path / "files", one=b"1" * 20), tmp_path / "pieces", 10)
    manifest = tmp_path / "pieces" / "02" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"one"', '"two"'))
    with pytest.raises(PiecesError, match="pieces of different sets"):
        read_manifest(tmp_path / "pieces")
    with pytest.raises(PiecesError, match="is not empty"):
        split([], tmp_path / "pieces", 10)
    with pytest.raises(PiecesError, match="holds no piece"):
        read_manifest(tmp_path)


def test_wheels_are_installed_from_pieces_and_a_missing_one_is_skipped_and_named(tmp_path, capsys):
    for name in ("first", "other"):
        make_wheel(tmp_path / "wheels", name, f"VALUE = {name!r}\n" + "#" * 500)
    assert main(["split", str(tmp_path / "wheels"), str(tmp_path / "pieces"), "--mib", str(600 / 2**20)]) == 0
    parts = json.loads((tmp_path / "pieces" / "01" / "manifest.json").read_text())["files"][1]["parts"]
    (tmp_path / "pieces" / parts[-1]["path"]).unlink()
    assert main(["check", str(tmp_path / "pieces")]) == 1
    assert main(["install", str(tmp_path / "pieces"), str(tmp_path / "site")]) == 1
    printed = capsys.readouterr().out
    assert f"other-1.0-py3-none-any.whl: {parts[-1]['path']} is missing" in printed
    assert f"export PYTHONPATH={tmp_path / 'site'}" in printed
    command = [sys.executable, "-c", "import first, importlib.util; print(first.VALUE, importlib.util.find_spec('other'))"]
    shown = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "first None\n"


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
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks.gpu.wheels import main; sys.exit(main(['check', '.']))"
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, ". holds no piece (no folder in it has a manifest.json)\n")


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
