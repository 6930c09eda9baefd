"""What pyproject.toml cannot ask for: sdists whose bytes are the same in every build, and a readme that reads right on a package index."""

import gzip
import os
import pathlib
import re
import tarfile
import time
import tomllib

from setuptools import setup
from setuptools.command.sdist import sdist


class ReproducibleSdist(sdist):
    """An sdist whose files belong to nobody and have the time SOURCE_DATE_EPOCH; setuptools gives them those of the checkout."""

    def make_archive(self, base_name: str, format: str, root_dir: str | None = None, base_dir: str | None = None, **_: object) -> str:  # noqa: A002  setuptools' name
        """Write BASE_NAME.tar.gz from the folder BASE_DIR, and give its path."""
        epoch_s = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())

        def normalized(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        path = f"{base_name}.tar.gz"
        with (
            pathlib.Path(path).open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch_s) as compressed,
            # dereference: the folder is made of hard links, and perfkit/docs of symbolic ones
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive,
        ):
            archive.add(pathlib.Path(root_dir or os.curdir) / (base_dir or os.curdir), arcname=base_dir, filter=normalized)
        return path


def readme_with_absolute_links(folder: pathlib.Path) -> str:
    """README.md, with links to files of the repository at the address that pyproject.toml names; pictures as files, not as pages."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"]["Repository"]

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match["picture"] else "blob"
        return f"{match['picture']}[{match['text']}]({repository}/{kind}/main/{match['target']})"

    text = (folder / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?:|#)[^)]+)\)", absolute, text)


setup(
    cmdclass={"sdist": ReproducibleSdist},
    long_description=readme_with_absolute_links(pathlib.Path(__file__).parent),
    long_description_content_type="text/markdown",
)
