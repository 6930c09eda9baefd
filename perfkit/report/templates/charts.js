"use strict";
(() => {
  const groups = JSON.parse(document.getElementById("chart-data").textContent);
  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  let isPrinting = false;
  const plots = [];
  const shade = () => (darkScheme.matches && !isPrinting ? 1 : 0);
  const colour = (pair) => pair[shade()];
  const GRID = ["#e4e7ea", "#2b323a"], TEXT = ["#57606a", "#9aa4af"], BAD = ["#b3261e", "#ff9a92"], HEAT = ["0, 90, 150", "95, 185, 240"];

  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const number = (value) => {
    if (value == null || !isFinite(value)) return "–";
    return value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4 });
  };
  const withUnit = (value, unit) => number(value) + (unit && value != null ? (unit.startsWith("/") || unit === "%" ? "" : " ") + unit : "");
  const percentile = (x) => (100 * (1 - 1 / x)).toLocaleString("en-US", { maximumFractionDigits: Math.max(1, Math.ceil(Math.log10(x))) }) + "%";
  const place = (chart, x) => {
    if (chart.x.is_percentile) return percentile(x);
    return (chart.x.ticks.find((tick) => tick[0] === x) ?? [x, withUnit(x, chart.x.unit)])[1];
  };

  // uPlot wants one ascending x for all series: each is sorted, and its ys are put beside the xs of all
  const aligned = (chart) => {
    if (!chart.lines.length) return [[0]];
    return uPlot.join(chart.lines.map((line) => {
      let last = -Infinity;
      const pairs = line.xs.map((x, i) => [x, line.ys[i]]);
      if (!["line", "dashed", "steps"].includes(line.style)) pairs.sort((a, b) => a[0] - b[0]);
      for (const pair of pairs) last = pair[0] = pair[0] > last ? pair[0] : last + Math.max(Math.abs(last), 1e-9) * 1e-9;
      return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1])];
    }));
  };
  const logTicks = (low, high) => {
    const found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++) {
      for (const step of [1, 2, 5]) {
        const tick = Number(`${step}e${decade}`);
        if (tick >= low && tick <= high) found.push(tick);
      }
    }
    if (found.length > 9) return found.filter((tick) => /^1/.test(tick.toExponential()));
    if (found.length > 2) return found;
    const round = (value) => Number(value.toPrecision(2));
    return [...new Set([0, 1, 2, 3].map((i) => round(low * (high / low) ** (i / 3))))].filter((tick) => tick >= low && tick <= high);
  };
  const scaleOf = (axis, isX, heatRange) => ({
    time: false,
    distr: axis.scale === "log" ? 3 : 1,
    range: (u, min, max) => {
      if (isX && u.zoomed) return [min, max];
      if (min == null || max == null) { [min, max] = heatRange ?? [axis.scale === "log" ? 1 : 0, axis.scale === "log" ? 10 : 1]; }
      if (heatRange) { min = Math.min(min, heatRange[0]); max = Math.max(max, heatRange[1]); }
      if (axis.scale === "log") {
        const space = isX ? 1.08 : 1.15;
        return [axis.low ?? min / space, axis.high ?? max * space];
      }
      const space = isX ? 0 : 0.08;
      if (axis.scale === "linear") return [axis.low ?? min - space * (max - min || 1), axis.high ?? max + space * (max - min || 1)];
      return [axis.low ?? Math.min(0, min), (isX && axis.high) || Math.max(max * (1 + (isX ? 0.04 : space)), axis.high ?? 0) || 1];
    },
  });
  const axisOf = (axis, isX, format) => ({
    stroke: () => TEXT[shade()],
    grid: { stroke: () => GRID[shade()], width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    size: isX ? 28 : 58,
    gap: 4,
    space: isX ? 64 : 30,
    ...(axis.ticks.length
      ? { splits: (u, i, low, high) => axis.ticks.map((tick) => tick[0]).filter((tick) => tick >= low && tick <= high) }
      : axis.scale === "log" ? { splits: (u, i, low, high) => logTicks(low, high) } : {}),
    filter: (u, splits) => splits,
    values: (u, splits) => {
      if (!axis.ticks.length) return splits.map(format);
      const text = (split) => (axis.ticks.find((tick) => tick[0] === split) ?? [0, ""])[1];
      if (!isX) return splits.map(text);
      let edge = -Infinity;
      return splits.map((split) => {
        const at = u.valToPos(split, "x"), half = 3.6 * text(split).length + 4;
        if (at - half < edge) return "";
        edge = at + half;
        return text(split);
      });
    },
  });
  const heatRangeOf = (chart) => {
    if (!chart.heat?.columns.length) return null;
    const per = chart.heat.bins_per_decade;
    let low = Infinity, high = -Infinity;
    for (const column of chart.heat.columns) {
      low = Math.min(low, column.first_bin);
      high = Math.max(high, column.first_bin + column.counts.length);
    }
    return [10 ** (low / per), 10 ** (high / per)];
  };

  const drawBehind = (chart) => (u) => {
    const { ctx, bbox } = u;
    const x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const span of chart.spans) {
      ctx.globalAlpha = 0.13;
      ctx.fillStyle = span.is_bad ? BAD[shade()] : TEXT[shade()];
      ctx.fillRect(x(span.low), bbox.top, x(span.high) - x(span.low), bbox.height);
    }
    if (chart.heat) {
      const per = chart.heat.bins_per_decade;
      for (const column of chart.heat.columns) {
        const left = x(column.low), width = Math.max(x(column.high) - left, 1);
        if (left > bbox.left + bbox.width || left + width < bbox.left) continue;
        const total = column.counts.reduce((sum, count) => sum + count, 0);
        column.counts.forEach((count, i) => {
          if (!count) return;
          const top = y(10 ** ((column.first_bin + i + 1) / per)), bottom = y(10 ** ((column.first_bin + i) / per));
          ctx.globalAlpha = 0.1 + 0.65 * Math.sqrt(count / total);
          ctx.fillStyle = `rgb(${HEAT[shade()]})`;
          ctx.fillRect(left, top, width, bottom - top);
        });
      }
    }
    ctx.globalAlpha = 1;
    const ratio = uPlot.pxRatio;
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    const below = chart.levels.some((level) => level.is_vertical && level.label) ? 15 : 2;
    for (const span of chart.spans) {
      if (span.is_bad || x(span.high) < bbox.left) continue;
      ctx.fillStyle = TEXT[shade()];
      ctx.fillText(span.label, Math.max(x(span.low), bbox.left) + 4 * ratio, bbox.top + below * ratio);
    }
    let edge = -Infinity;
    for (const level of chart.levels) {
      ctx.strokeStyle = ctx.fillStyle = colour(level.colour);
      ctx.lineWidth = ratio;
      ctx.setLineDash(level.is_vertical ? [2 * ratio, 3 * ratio] : [6 * ratio, 4 * ratio]);
      ctx.beginPath();
      const at = level.is_vertical ? x(level.value) : y(level.value);
      if (level.is_vertical) { ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); }
      else { ctx.moveTo(bbox.left, at); ctx.lineTo(bbox.left + bbox.width, at); }
      ctx.stroke();
      const width = ctx.measureText(level.label).width, from = Math.max(at, bbox.left) + 4 * ratio;
      if (level.is_vertical && at >= bbox.left - 1 && from > edge && from + width < bbox.left + bbox.width) {
        ctx.fillText(level.label, from, bbox.top + 2 * ratio);
        edge = from + width + 8 * ratio;
      }
      if (!level.is_vertical && level.label) ctx.fillText(level.label, bbox.left + bbox.width - width - 4 * ratio, at + 3 * ratio);
    }
    ctx.restore();
  };
  const drawPaths = (chart) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    chart.lines.forEach((line, i) => {
      if (!u.series[i + 1].show) return;
      line.intervals.forEach(([left, right, low, high], j) => {
        if (line.ys[j] == null) return;
        ctx.strokeStyle = colour(line.colour);
        ctx.lineWidth = uPlot.pxRatio;
        ctx.globalAlpha = 0.6;
        const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
        ctx.beginPath();
        ctx.moveTo(...at(left, line.ys[j]));
        ctx.lineTo(...at(right, line.ys[j]));
        ctx.moveTo(...at(line.xs[j], low));
        ctx.lineTo(...at(line.xs[j], high));
        ctx.stroke();
        ctx.globalAlpha = 1;
      });
      if (line.style !== "path") return;
      ctx.strokeStyle = colour(line.colour);
      ctx.lineWidth = 1.6 * uPlot.pxRatio;
      ctx.beginPath();
      let isOn = false;
      line.xs.forEach((x, j) => {
        if (line.ys[j] == null) { isOn = false; return; }
        const at = [u.valToPos(x, "x", true), u.valToPos(line.ys[j], "y", true)];
        if (isOn) ctx.lineTo(...at); else ctx.moveTo(...at);
        isOn = true;
      });
      ctx.stroke();
    });
    ctx.restore();
  };

  const seriesOf = (line) => {
    const made = { label: line.name, stroke: () => colour(line.colour), width: 1.6, points: { size: 5, fill: () => colour(line.colour) } };
    if (line.style === "dashed") made.dash = [6, 4];
    if (line.style === "steps") made.paths = uPlot.paths.stepped({ align: 1 });
    if (["dots", "hollow", "large", "path"].includes(line.style)) {
      made.paths = () => null;
      made.points = { show: true, size: { hollow: 9, large: 12 }[line.style] ?? 6, width: 1.6 };
      made.points.fill = () => (line.style === "hollow" ? ["#ffffff", "#15191e"][shade()] : colour(line.colour));
    }
    return made;
  };

  const zoom = (group, low, high) => {
    for (const u of group.plots) {
      u.zoomed = low != null;
      if (low == null) u.setData(u.data, true); else u.setScale("x", { min: low, max: high });
    }
    group.reset.hidden = low == null;
    if (group.choice) group.choice.value = String(group.windows.findIndex((one) => one.low === low && one.high === high));
  };
  const zoomBy = (group, u, factor) => {
    const { min, max } = u.scales.x, isLog = u.scales.x.distr === 3;
    const to = isLog ? Math.log : (v) => v, back = isLog ? Math.exp : (v) => v;
    const centre = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : back((to(min) + to(max)) / 2);
    const low = back(to(centre) - (to(centre) - to(min)) * factor), high = back(to(centre) + (to(max) - to(centre)) * factor);
    if (u.data[0].filter((x) => x >= low && x <= high).length > 1) zoom(group, low, high);
  };

  const describe = (chart) => {
    const parts = chart.lines.map((line) => {
      const values = line.ys.filter((y) => y != null);
      if (!values.length) return `${line.name}: no values`;
      const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      return `${line.name}: ${number(low)} to ${withUnit(high, chart.y.unit)}`;
    });
    return `${chart.title}. ${chart.y.label} against ${chart.x.label}. ${parts.join("; ")}.`;
  };
  const valuesTable = (chart, data) => {
    const table = element("table"), head = element("tr"), body = element("tbody"), MOST = 400;
    for (const text of [chart.x.label, ...chart.lines.map((line) => line.name)]) head.append(element("th", { scope: "col" }, text));
    const filled = data[0].map((_, i) => i).filter((i) => data.slice(1).some((ys) => ys[i] != null));
    const step = Math.ceil(filled.length / MOST);
    filled.filter((_, i) => i % step === 0).forEach((i) => {
      const row = element("tr");
      row.append(element("td", { class: "figure" }, place(chart, data[0][i])));
      data.slice(1).forEach((ys) => row.append(element("td", { class: "figure" }, withUnit(ys[i], chart.y.unit))));
      body.append(row);
    });
    const thead = element("thead");
    thead.append(head);
    table.append(thead, body);
    return table;
  };

  const drawChart = (chart, group, holder) => {
    const box = element("div", { class: "chart" }), data = aligned(chart);
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
    if (!group.is_synchronised || group.plots.length === group.charts.length - 1) box.append(element("p", { class: "x-label muted" }, chart.x.label));
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
        ...(group.is_synchronised ? { sync: { key: group.key, scales: ["x", null] } } : {}),
      },
      scales: { x: scaleOf(chart.x, true), y: scaleOf(chart.y, false, heatRangeOf(chart)) },
      axes: [axisOf(chart.x, true, format), axisOf(chart.y, false, format)],
      series: [{}, ...chart.lines.map(seriesOf)],
      padding: [8, 12, 0, 0],
      hooks: {
        drawAxes: [drawBehind(chart)],
        draw: [drawPaths(chart)],
        setSelect: [() => {
          if (u.select.width > 4) zoom(group, u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        setCursor: [() => {
          const index = u.cursor.idx;
          where.textContent = index == null ? "" : `${place(chart, data[0][index])}:`;
          buttons.forEach((one, i) => {
            const own = u.cursor.idxs?.[i + 1];
            one.value.textContent = index == null || own == null ? "" : ` ${withUnit(data[i + 1][own], chart.y.unit)}`;
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
      wide.append(valuesTable(chart, data));
      details.append(wide);
    });
    box.append(details);
    group.plots.push(u);
    plots.push(u);
  };

  groups.forEach((group, index) => {
    const holder = document.getElementById(`charts-${index}`);
    Object.assign(group, { plots: [], key: `group-${index}` });
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
    holder.classList.add(`columns-${Math.min(group.columns, 3)}`);
    for (const chart of group.charts) drawChart(chart, group, holder);
  });

  const paint = () => plots.forEach((u) => u.paint());
  darkScheme.addEventListener("change", paint);
  addEventListener("beforeprint", () => { isPrinting = true; plots.forEach((u) => u.resize()); paint(); });
  addEventListener("afterprint", () => { isPrinting = false; plots.forEach((u) => u.resize()); paint(); });
  document.documentElement.dataset.charts = String(plots.length);
})();
