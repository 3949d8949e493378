// For keyboards and screen readers: the search has a name, and wide tables can be scrolled. The
// theme wraps tables after the page has loaded.
document$.subscribe(() =>
  setTimeout(() => {
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
      wide.tabIndex = 0;
    }
  }, 100),
);
