"use strict";
addEventListener("beforeprint", () => { // paper shows what is folded
  for (const fold of document.querySelectorAll("details:not([open])")) {
    fold.open = true;
    addEventListener("afterprint", () => { fold.open = false; }, { once: true });
  }
});
