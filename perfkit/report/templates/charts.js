"use strict";
// what a reader does with the charts that perfkit drew: reads values, zooms, hides lines, chooses a load point
(() => {
  const UNIT_PX = 1.15, RIGHT = 20, BESIDE = 6, ROW = 11, MOST_ROWS_OF_NAMES = 3, NEAR = 12, MOST_ROWS = 400; // lengths in units of the pictures
  const groups = JSON.parse(document.getElementById("chart-data").textContent);
  const paper = matchMedia("print");
  const panels = [];
  const axes = {}; // by name: the panels and figures that share cursor and zoom, and what is shown of the axis; null for all of it

  const set = (one, attributes) => { for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value); };
  const element = (name, attributes = {}, text = "") => {
    const made = name.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
    set(made, attributes);
    made.textContent = text;
    return made;
  };
  const number = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4 });
  const withUnit = (text, unit) => text + (unit && (unit.startsWith("/") || unit === "%" ? "" : " ") + unit);
  const place = (axis, x) => {
    if (axis.kind === "date") return new Date(x * 86_400_000).toISOString().slice(0, 10);
    if (axis.kind === "percentile") return (100 * (1 - 1 / x)).toLocaleString("en-US", { maximumFractionDigits: Math.max(1, Math.ceil(Math.log10(x))) }) + "%";
    const named = axis.is_named && axis.ticks.find(([value]) => value === x);
    return named ? named[1] : withUnit(number(x), axis.unit);
  };
  const shareOf = (axis, value) => (axis.is_log ? Math.log(value / axis.low) / Math.log(axis.high / axis.low) : (value - axis.low) / (axis.high - axis.low));
  const valueAt = (axis, share) => (axis.is_log ? axis.low * (axis.high / axis.low) ** share : axis.low + share * (axis.high - axis.low));
  const valueText = (line, unit, j) => {
    const [low, high] = line.ends[j] ?? [], label = line.labels[j];
    return withUnit(number(line.ys[j]), unit) + (low == null || low === high ? "" : ` (${number(low)} to ${number(high)})`) + (label ? `, ${label}` : "");
  };

  class Panel {
    constructor(data, chart, axis) {
      Object.assign(this, { data, axis, chart, box: chart.querySelector(".plot"), at: null });
      this.svg = this.box.firstElementChild;
      this.values = this.svg.querySelector(".values");
      this.height = this.svg.viewBox.baseVal.height - ROW * (data.rows - 1); // with one row of texts below the x axis
      this.drawnWidth = this.svg.viewBox.baseVal.width;
      const drawn = this.svg.querySelector(".lines").children;
      this.lines = data.lines.map((line, i) => ({
        ...line, drawn: drawn[i], isShown: true,
        points: line.xs.map((x, j) => ({ x, j, share: shareOf(data.x, x), up: line.ys[j] == null ? NaN : shareOf(data.y, line.ys[j]) })),
      }));
      this.cursor = element("svg:path", { class: "cursor" });
      this.selection = element("svg:path", { class: "selection" });
      this.marks = element("svg:g");
      this.svg.append(this.selection, this.cursor, this.marks);
      this.where = element("span", { class: "where" });
      this.spoken = element("p", { class: "unseen", "aria-live": "polite" });
      this.keys = this.addKeys();
      set(this.box, { tabindex: "0", role: "application", "aria-label": `${data.title}: arrow keys read the values, plus and minus zoom, Escape shows all` });
      chart.append(this.spoken, this.addTable());
      this.listen();
      new ResizeObserver(() => this.layOut()).observe(this.box);
    }

    addKeys() { // the names of the lines become buttons
      const legend = this.chart.querySelector(".legend"), shown = [...legend.children];
      legend.prepend(this.where);
      return [...new Set(this.lines.map((line) => line.name))].map((name, i) => {
        const button = element("button", { type: "button", class: "key", "aria-pressed": "true", title: "show or hide" }), value = element("span", { class: "value" });
        button.append(...shown[i].childNodes, value);
        shown[i].replaceWith(button);
        const lines = this.lines.filter((line) => line.name === name);
        button.addEventListener("click", () => {
          const isShown = button.getAttribute("aria-pressed") === "false";
          button.setAttribute("aria-pressed", String(isShown));
          for (const line of lines) { line.isShown = isShown; line.drawn.style.display = isShown ? "" : "none"; }
        });
        return { name, value, lines };
      });
    }

    addTable() {
      const details = element("details", { class: "values-table" });
      details.append(element("summary", {}, `Values of ${this.data.title}`));
      details.addEventListener("toggle", () => {
        if (!details.open || details.querySelector("table")) return;
        const wide = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Values of ${this.data.title}` });
        const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
        for (const text of [this.data.x.label, ...this.lines.map((line) => line.name)]) head.append(element("th", { scope: "col" }, text));
        const xs = this.places(), step = Math.ceil(xs.length / MOST_ROWS);
        for (const x of xs.filter((_, i) => i % step === 0)) {
          const row = body.insertRow();
          const texts = this.lines.map((line) => line.points.filter((one) => one.x === x && line.ys[one.j] != null).map((one) => valueText(line, this.data.y.unit, one.j)));
          for (const text of [place(this.data.x, x), ...texts.map((some) => some.join("; ") || "–")]) row.append(element("td", { class: "figure" }, text));
        }
        wide.append(table);
        details.append(wide);
      });
      return details;
    }

    get view() { // the shown part of the x axis, in shares of it
      return this.axis.view ? this.axis.view.map((value) => shareOf(this.data.x, value)) : [0, 1];
    }

    places([from, to] = [-Infinity, Infinity]) { // the values of x that have a value in a line that is shown, ascending
      const points = this.lines.filter((line) => line.isShown).flatMap((line) => line.points);
      return [...new Set(points.filter((one) => isFinite(one.up) && one.share >= from - 1e-9 && one.share <= to + 1e-9).map((one) => one.x))].sort((a, b) => a - b);
    }

    ticks() { // those that are drawn, or round values if few of them are in the shown part
      const { x } = this.data, [from, to] = this.view;
      const seen = x.ticks.filter(([value]) => shareOf(x, value) >= from - 1e-9 && shareOf(x, value) <= to + 1e-9);
      if (!this.axis.view || x.is_named || seen.length > 2) return seen;
      const [low, high] = this.axis.view, apart = (high - low) / 6, ten = 10 ** Math.floor(Math.log10(apart));
      const round = ten * [1, 2, 5, 10].find((one) => one * ten >= apart), step = x.is_whole || x.kind === "date" ? Math.max(1, Math.round(round)) : round;
      const found = [];
      for (let count = Math.ceil(low / step); count * step <= high; count++) found.push([count * step, x.kind ? place(x, count * step) : number(count * step)]);
      return found;
    }

    left(share) { // where a share of the axis lies in the picture
      const [from, to] = this.view;
      return this.data.box[0] + ((share - from) / (to - from)) * this.width;
    }

    layOut() {
      const [left, top, drawn, height] = this.data.box, [from, to] = this.view, bottom = top + height, part = (name) => this.svg.querySelector(`.${name}`);
      const total = paper.matches ? this.drawnWidth : Math.max(this.box.clientWidth, 200) / UNIT_PX;
      this.width = total - left - RIGHT;
      const beside = (BESIDE * drawn * (to - from)) / this.width, right = left + this.width; // in units of the stretched values
      set(this.values, { width: this.width + 2 * BESIDE, viewBox: `${from * drawn - beside} ${-BESIDE} ${(to - from) * drawn + 2 * beside} ${height + 2 * BESIDE}` });
      part("frame").setAttribute("d", `M${left} ${top}V${bottom}H${right}`);
      part("levels").setAttribute("d", this.data.y.ticks.map(([value]) => `M${left} ${bottom - shareOf(this.data.y, value) * height}H${right}`).join(""));
      const ticks = this.ticks().map(([value, text]) => [value, this.left(shareOf(this.data.x, value)), text]);
      part("uprights").setAttribute("d", ticks.map(([, x]) => `M${x} ${top}V${bottom}`).join(""));
      part("ticks")?.replaceChildren(...ticks.map(([value, , text]) => element("svg:text", { y: bottom + 12, "data-value": value }, text)));
      const below = ROW * (this.spreadTicks([...(part("ticks")?.children ?? [])], bottom + 12, total) - 1);
      set(this.svg, { viewBox: `0 0 ${total} ${this.height + below}`, width: total, height: this.height + below });
      this.spread(part("names")?.children ?? [], (at, length) => (at + 3 + length > right ? at - 3 - length : at + 3), total);
      if (part("label")) set(part("label"), { x: left + this.width / 2, y: bottom + 25 + below });
      this.read(this.at);
    }

    spreadTicks(texts, top, total) { // names in up to three rows, numbers in one; of those that overlap, every second, third and so on; returns the number of rows
      const { x: axis } = this.data, isOfDecades = axis.is_log && !axis.is_named, mostRows = axis.is_named ? MOST_ROWS_OF_NAMES : 1;
      const places = texts.map((text) => {
        const value = Number(text.dataset.value), length = text.getComputedTextLength();
        const x = Math.max(0, Math.min(this.left(shareOf(axis, value)) - length / 2, total - length));
        return { text, x, end: x + length + 6, isRound: !axis.is_named && (value === 0 || (axis.is_log && /^1e/.test(value.toExponential()))) };
      });
      const first = Math.max(0, places.findIndex((one) => one.isRound));
      let step = 1, rows = 1, chosen = places;
      while (chosen.some((one, i) => i >= rows && chosen[i - rows].end > one.x)) {
        if (rows < mostRows) rows += 1;
        else [rows, step] = [1, step + (isOfDecades && step === 1 ? 2 : 1)]; // of 1, 2 and 5 every third
        chosen = places.filter((_, i) => (i - first) % step === 0);
      }
      for (const { text, x } of places) set(text, { x, "text-anchor": "start", visibility: "hidden" });
      chosen.forEach(({ text }, i) => set(text, { y: top + ROW * (i % rows), visibility: "visible" }));
      return rows;
    }

    spread(texts, start, total) { // puts texts where their values are; those that would overlap the one before in their row, or lie outside, are hidden
      const ends = {};
      for (const text of texts) {
        const share = shareOf(this.data.x, Number(text.dataset.value)), length = text.getComputedTextLength(), row = text.getAttribute("y");
        const left = start(this.left(share), length), [from, to] = this.view;
        const fits = share >= from - 1e-6 && share <= to + 1e-6 && left >= (ends[row] ?? -Infinity) && left + length <= total;
        set(text, { x: left, "text-anchor": "start", visibility: fits ? "visible" : "hidden" });
        if (fits) ends[row] = left + length + 6;
      }
    }

    nearest(line, x, y) { // the point of a line that belongs to a place of the picture; joined lines have one everywhere between their ends
      const places = line.points.map((one) => ({ ...one, line, at: this.left(one.share), away: Math.abs(this.left(one.share) - x) })).filter((one) => isFinite(one.at));
      const high = (one) => (y == null ? 0 : Math.abs(this.data.box[1] + (1 - one.up) * this.data.box[3] - y));
      const known = places.filter((one) => isFinite(one.up) && (line.style !== "steps" || one.at <= x + 0.5));
      const best = known.reduce((a, b) => (a && (a.away - b.away || high(a) - high(b)) <= 0 ? a : b), null);
      if (!best || best.away <= NEAR) return best;
      const isJoined = ["line", "dashed", "dotted", "steps"].includes(line.style) && x >= places[0].at && x <= places.at(-1).at;
      const isGap = places.some((one) => !isFinite(one.up) && (one.at - x) * (one.at - best.at) < 0);
      return isJoined && !isGap ? best : null;
    }

    read(at, y = null) { // shows the values at a value of x; null shows none
      this.at = at;
      const [, top, , height] = this.data.box, x = at == null ? NaN : this.left(shareOf(this.data.x, at));
      const isIn = x >= this.data.box[0] - 1 && x <= this.data.box[0] + this.width + 1;
      const found = isIn ? this.lines.map((line) => (line.isShown ? this.nearest(line, x, y) : null)) : [];
      const points = found.filter(Boolean), first = points.reduce((a, b) => (a && a.away <= b.away ? a : b), null);
      this.cursor.setAttribute("d", isIn ? `M${x} ${top}V${top + height}` : "");
      this.marks.replaceChildren(...points.map((one) => element("svg:circle", { cx: this.left(one.share), cy: top + (1 - one.up) * height, r: 3.6, fill: one.line.colour })));
      this.where.textContent = first ? `${place(this.data.x, first.x)}:` : "";
      const texts = this.keys.map(({ lines }) => points.filter((one) => lines.includes(one.line)).map((one) => valueText(one.line, this.data.y.unit, one.j)).join("; "));
      this.keys.forEach((key, i) => { key.value.textContent = texts[i] && ` ${texts[i]}`; });
      return `${this.where.textContent} ${this.keys.map((key, i) => texts[i] && `${key.name} ${texts[i]}`).filter(Boolean).join(", ")}`;
    }

    zoom(from, to) { // shows a part of the axis, given in shares of it, if more than one value lies in it
      const view = [Math.max(from, 0), Math.min(to, 1)];
      if (this.places(view).length > 1) show(this.axis, view[1] - view[0] > 0.999 ? null : view.map((share) => valueAt(this.data.x, share)));
    }

    listen() {
      const shareAt = (x) => this.view[0] + ((x - this.data.box[0]) / this.width) * (this.view[1] - this.view[0]);
      const placeOf = (event) => {
        const { left, top, width } = this.svg.getBoundingClientRect(), unit = width / this.svg.viewBox.baseVal.width;
        return [(event.clientX - left) / unit, (event.clientY - top) / unit].map((one, i) => (i ? one : Math.min(Math.max(one, this.data.box[0]), this.data.box[0] + this.width)));
      };
      let start = null;
      const ends = (x) => (start != null && Math.abs(x - start) > 4 ? [Math.min(x, start), Math.max(x, start)] : null);
      const select = (range) => this.selection.setAttribute("d", range ? `M${range[0]} ${this.data.box[1]}H${range[1]}v${this.data.box[3]}H${range[0]}Z` : "");
      this.box.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        [start] = placeOf(event);
        this.box.setPointerCapture(event.pointerId);
      });
      this.box.addEventListener("pointermove", (event) => {
        const [x, y] = placeOf(event);
        for (const one of this.axis.panels) one.read(valueAt(this.data.x, shareAt(x)), one === this ? y : null);
        select(ends(x));
      });
      this.box.addEventListener("pointerup", (event) => {
        const range = ends(placeOf(event)[0]);
        start = null;
        select(null);
        if (range) this.zoom(...range.map(shareAt));
      });
      this.box.addEventListener("pointercancel", () => { start = null; select(null); });
      this.box.addEventListener("pointerleave", () => { for (const one of this.axis.panels) one.read(null); });
      this.box.addEventListener("dblclick", () => show(this.axis, null));
      this.box.addEventListener("keydown", (event) => {
        const [from, to] = this.view, xs = this.places(this.view);
        const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
        const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
        if (step !== undefined && xs.length) {
          const now = this.at == null ? -1 : xs.indexOf(this.at), next = xs[Math.max(0, Math.min(xs.length - 1, now + step))];
          for (const one of this.axis.panels) one.read(next);
          this.spoken.textContent = this.read(next);
        } else if (factor) {
          const centre = this.at == null ? (from + to) / 2 : shareOf(this.data.x, this.at);
          this.zoom(centre - (centre - from) * factor, centre + (to - centre) * factor);
        } else if (event.key === "Escape") {
          show(this.axis, null);
          for (const one of this.axis.panels) one.read(null);
        } else return;
        event.preventDefault();
      });
    }
  }

  const show = (axis, view) => {
    axis.view = view;
    for (const panel of axis.panels) panel.layOut();
    for (const { reset, choice, windows, own } of axis.figures) {
      reset.hidden = own.every((panel) => !panel.axis.view);
      if (choice) choice.value = String(windows.findIndex(([low, high]) => view && low === view[0] && high === view[1]));
    }
  };

  document.documentElement.classList.add("live");
  document.querySelectorAll(".charts").forEach((holder, index) => {
    const group = groups[index], tools = element("div", { class: "tools" });
    const figure = { own: [], windows: group.windows, reset: element("button", { type: "button" }, "Show all") };
    figure.reset.hidden = true;
    figure.reset.addEventListener("click", () => { for (const axis of new Set(figure.own.map((panel) => panel.axis))) show(axis, null); });
    group.panels.forEach((data, i) => {
      const name = group.is_synchronised ? group.axis || `figure ${index}` : `panel ${index}-${i}`;
      const axis = (axes[name] ??= { panels: [], figures: new Set(), view: null });
      const panel = new Panel(data, holder.children[i], axis);
      for (const list of [axis.panels, figure.own, panels]) list.push(panel);
      axis.figures.add(figure);
    });
    if (group.windows.length) {
      const label = element("label", {}, "Load point: ");
      figure.choice = element("select");
      figure.choice.append(element("option", { value: "-1" }, "all"), ...group.windows.map(([, , text], i) => element("option", { value: i }, text)));
      figure.choice.addEventListener("change", () => show(figure.own[0].axis, group.windows[figure.choice.value]?.slice(0, 2) ?? null));
      label.append(figure.choice);
      tools.append(label);
    }
    if (!index) holder.after(element("p", { class: "muted hint" }, "Drag to zoom, double-click to show all; the names show and hide lines."));
    tools.append(figure.reset);
    holder.before(tools);
  });
  for (const panel of panels) panel.layOut();
  paper.addEventListener("change", () => { for (const panel of panels) panel.layOut(); });
  document.documentElement.dataset.charts = String(panels.length);
})();
