"use strict";
(() => {
  const { NEAR, aligned, describe, heatRangeOf, number, place, valueText } = chartValues;
  const { RIGHT_PX, axisOf, colour, darkScheme, drawBehind, drawNames, drawPaths, scaleOf, seriesOf } = chartDrawing;
  const groups = JSON.parse(document.getElementById("chart-data").textContent);
  const plots = [];
  const axes = {}; // what the groups that share an axis have in common
  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const zoom = (group, low, high) => {
    for (const u of group.plots) {
      u.zoomed = low != null;
      if (low == null) u.setData(u.data, true); else u.setScale("x", { min: low, max: high });
    }
    for (const one of group.together) {
      one.reset.hidden = low == null;
      if (one.choice) one.choice.value = String(one.windows.findIndex((range) => range.low === low && range.high === high));
    }
  };
  const zoomBy = (group, u, factor) => {
    const { min, max } = u.scales.x, isLog = u.scales.x.distr === 3;
    const to = isLog ? Math.log : (v) => v, back = isLog ? Math.exp : (v) => v;
    const centre = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : back((to(min) + to(max)) / 2);
    const low = back(to(centre) - (to(centre) - to(min)) * factor), high = back(to(centre) + (to(max) - to(centre)) * factor);
    if (u.data[0].filter((x) => x >= low && x <= high).length > 1) zoom(group, low, high);
  };

  const valuesTable = (chart, data, origins) => {
    const table = element("table"), head = element("tr"), body = element("tbody"), MOST = 400;
    for (const text of [chart.x.label, ...chart.lines.map((line) => line.name)]) head.append(element("th", { scope: "col" }, text));
    const filled = data[0].map((_, i) => i).filter((i) => data.slice(1).some((ys) => ys[i] != null));
    const step = Math.ceil(filled.length / MOST);
    filled.filter((_, i) => i % step === 0).forEach((i) => {
      const row = element("tr");
      row.append(element("td", { class: "figure" }, place(chart, data[0][i])));
      data.slice(1).forEach((_, s) => row.append(element("td", { class: "figure" }, valueText(chart, data, origins, s, i))));
      body.append(row);
    });
    const thead = element("thead");
    thead.append(head);
    table.append(thead, body);
    return table;
  };

  const drawChart = (chart, group, holder) => {
    const box = element("div", { class: "chart" }), { data, origins } = aligned(chart);
    const title = element("p", { class: "chart-title" }, chart.title);
    if (chart.y.unit) title.append(element("span", { class: "muted" }, `, ${chart.y.unit}`));
    const name = `${chart.title}: arrow keys read the values, plus and minus zoom, Escape shows all`;
    const canvas = element("div", { class: "canvas", tabindex: "0", role: "application", "aria-label": name });
    const spoken = element("p", { class: "unseen", "aria-live": "polite" });
    const legend = element("div", { class: "legend" });
    const where = element("span", { class: "where" });
    const buttons = chart.lines.map((line, i) => {
      const button = element("button", { type: "button", "aria-pressed": "true", title: "show or hide" });
      const swatch = element("span", { class: `swatch ${line.style}`, "aria-hidden": "true" });
      const value = element("span", { class: "value" });
      button.append(swatch, element("span", {}, line.name), value);
      button.addEventListener("click", () => {
        const show = !u.series[i + 1].show;
        u.setSeries(i + 1, { show });
        button.setAttribute("aria-pressed", String(show));
      });
      return { button, swatch, value };
    });
    legend.append(where, ...buttons.map((one) => one.button));
    box.append(title, legend, canvas, spoken);
    if (!group.is_synchronised || chart === group.charts[group.charts.length - 1]) box.append(element("p", { class: "x-label muted" }, chart.x.label));
    holder.append(box);

    const width = () => Math.max(canvas.clientWidth, 200);
    const format = (value) => number(value);
    const u = new uPlot({
      width: width(), height: chart.height_px,
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { zoom(group, null); return null; } },
        points: { size: 8 },
        hover: {
          prox: (u, i, index, x) => {
            const { style, xs } = chart.lines[i - 1];
            return NEAR.includes(style) || x < xs[0] || x > xs[xs.length - 1] ? 14 : null;
          },
        },
        ...(group.is_synchronised ? { sync: { key: group.key, scales: ["x", null] } } : {}),
      },
      scales: { x: scaleOf(chart, origins, true), y: scaleOf(chart, origins, false, heatRangeOf(chart)) },
      axes: [axisOf(chart.x, true, format), axisOf(chart.y, false, format)],
      series: [{}, ...chart.lines.map(seriesOf)],
      padding: [8, RIGHT_PX, 0, 0],
      hooks: {
        drawAxes: [drawBehind(chart)],
        draw: [drawPaths(chart), drawNames(chart)],
        setSelect: [() => {
          if (u.select.width > 4) zoom(group, u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        setCursor: [() => {
          const index = u.cursor.idx;
          where.textContent = index == null ? "" : `${place(chart, data[0][index])}:`;
          buttons.forEach((one, i) => {
            const own = u.cursor.idxs?.[i + 1];
            one.value.textContent = index == null || own == null ? "" : ` ${valueText(chart, data, origins, i, own)}`;
          });
        }],
      },
    }, data, canvas);
    u.root.querySelector("canvas").setAttribute("role", "img");
    u.root.querySelector("canvas").setAttribute("aria-label", describe(chart));
    u.paint = () => {
      buttons.forEach((one, i) => one.swatch.style.setProperty("--swatch", colour(chart.lines[i].colour)));
      u.redraw(false, true);
    };
    u.resize = () => u.setSize({ width: width(), height: chart.height_px });
    buttons.forEach((one, i) => one.swatch.style.setProperty("--swatch", colour(chart.lines[i].colour)));
    new ResizeObserver(() => { if (Math.abs(width() - u.width) > 1) u.resize(); }).observe(canvas);
    canvas.addEventListener("keydown", (event) => {
      const filled = data[0].map((_, i) => i).filter((i) => data.slice(1).some((ys, s) => ys[i] != null && u.series[s + 1].show));
      const shown = filled.filter((i) => data[0][i] >= u.scales.x.min && data[0][i] <= u.scales.x.max);
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (step !== undefined && shown.length) {
        const now = u.cursor.idx == null ? -1 : shown.indexOf(u.cursor.idx);
        const next = shown[Math.max(0, Math.min(shown.length - 1, now + step))];
        const moved = group.is_synchronised ? group.plots : [u];
        for (const one of moved) one.setCursor({ left: one.valToPos(data[0][next], "x"), top: one.over.clientHeight / 2 });
        const values = buttons.map((one, i) => (u.series[i + 1].show && one.value.textContent ? `${chart.lines[i].name}${one.value.textContent}` : ""));
        spoken.textContent = `${where.textContent} ${values.filter(Boolean).join(", ")}`;
      } else if (event.key === "+" || event.key === "=") zoomBy(group, u, 0.5);
      else if (event.key === "-") zoomBy(group, u, 2);
      else if (event.key === "Escape") {
        zoom(group, null);
        for (const one of group.plots) one.setCursor({ left: -10, top: -10 });
      }
      else return;
      event.preventDefault();
    });
    const details = element("details", { class: "values" });
    details.append(element("summary", {}, `Values of ${chart.title}`));
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const wide = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Values of ${chart.title}` });
      wide.append(valuesTable(chart, data, origins));
      details.append(wide);
    });
    box.append(details);
    group.plots.push(u);
    plots.push(u);
  };

  groups.forEach((group, index) => {
    const holder = document.getElementById(`charts-${index}`);
    const key = group.axis || `group-${index}`;
    axes[key] ??= { plots: [], together: [], key };
    Object.assign(group, axes[key]);
    group.together.push(group);
    const tools = element("div", { class: "tools" });
    group.reset = element("button", { type: "button" }, "Show all");
    group.reset.hidden = true;
    group.reset.addEventListener("click", () => zoom(group, null));
    if (group.windows.length) {
      const label = element("label", {}, "Load point: ");
      group.choice = element("select");
      group.choice.append(element("option", { value: "-1" }, "all"));
      group.windows.forEach((one, i) => group.choice.append(element("option", { value: i }, one.label + (one.is_bad ? " (not valid)" : ""))));
      group.choice.addEventListener("change", () => {
        const one = group.windows[group.choice.value];
        if (one) zoom(group, one.low, one.high); else zoom(group, null);
      });
      label.append(group.choice);
      tools.append(label);
    }
    tools.append(element("span", { class: "muted hint" }, "Drag to zoom, double-click to show all; the names show and hide lines."), group.reset);
    holder.before(tools);
    holder.classList.add(`columns-${Math.min(group.columns, group.charts.length, 3)}`);
    for (const chart of group.charts) drawChart(chart, group, holder);
  });

  const paint = () => plots.forEach((u) => u.paint());
  darkScheme.addEventListener("change", paint);
  document.documentElement.dataset.charts = String(plots.length);
})();
