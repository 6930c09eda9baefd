"""Write the generated parts of the reference anew: `python -m docs_build.reference`."""

from docs_build.reference.pages import generated

if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
