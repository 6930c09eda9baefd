// The search runs in a worker, which browsers start for no page from a file: there, the worker's script runs in a hidden frame.
// The theme's plugin `offline` asks for a script of this name, and the search's script looks for `IFrameWorker`.
"use strict";
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const load = (address) => new Promise((done) => {
        const script = frame.contentDocument.createElement("script");
        script.src = new URL(address, document.baseURI);
        script.onload = done;
        frame.contentDocument.body.append(script);
      });
      this.scope.importScripts = (...addresses) => addresses.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
