"""MkDocs hooks: the site has every Markdown file of the repository, and every file that one of them links to."""

import pathlib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_build.repository_files import as_page, is_shown_as_text, linked_files, markdown_files, place_in_site, with_links_in_site


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the repository's files."""
    root = _root(config)
    pages = {f"docs/{file.src_uri}" for file in files.documentation_pages()} | set(markdown_files(root))
    linked = {target for page in pages for target in linked_files((root / page).read_text(encoding="utf-8"), page, root)}
    for path in sorted(pages | linked):
        place = place_in_site(path)
        if place in files.src_uris:
            continue
        if is_shown_as_text(path):
            files.append(File.generated(config, place, content=as_page(path, (root / path).read_text(encoding="utf-8"))))
        else:
            files.append(File.generated(config, place, abs_src_path=str(root / path)))
    for name in ("theme/iframe-worker.js", "theme/site.js", "theme/site.css"):
        asset = pathlib.Path(__file__).parent / name
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Names the theme's search for screen readers, which the theme does not."""
    return output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Removes the theme's page for addresses that do not exist: it looks for its style at the root of the host, where the site may not be."""
    pathlib.Path(config.site_dir, "404.html").unlink()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Leads a page's links to where the files are in the site."""
    root = _root(config)
    paths = {place_in_site(path): path for path in markdown_files(root)}
    place = page.file.src_uri
    if place.startswith("source/") and place not in paths:
        return markdown  # shows a text file
    return with_links_in_site(markdown, paths.get(place, f"docs/{place}"), root)


def _root(config: MkDocsConfig) -> pathlib.Path:
    return pathlib.Path(config.config_file_path).parent
