// wide tables and code scroll within the page; with a place in the order of keys they can be scrolled by keys, too
addEventListener("load", () => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
});
