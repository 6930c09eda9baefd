"""The layers of docs/reference/server.md, checked against every import of the server."""

from tests.test_architecture import ROOT, read_imports, read_layers


def test_a_package_of_the_server_imports_only_from_the_layers_below_it():
    imports = read_imports(ROOT, ("server_stub",))
    layers = read_layers((ROOT / "docs/reference/server.md").read_text(encoding="utf-8"))
    layers["__main__"] = max(layers.values()) + 1
    package_of = {module: module.split(".")[1] for module in imports if module.startswith("server_stub.")}
    assert set(package_of.values()) == set(layers)
    violations = [
        f"{module} -> {name}"
        for module, package in package_of.items()
        for name in imports[module]
        if name in package_of and package_of[name] != package and layers[package_of[name]] >= layers[package]
    ]
    assert violations == []
