"use strict";
document.querySelectorAll("main table").forEach((table) => {
  const body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 2) return;
  const value = (row, column) => {
    const cell = row.cells[column], given = cell.dataset.value;
    return given === undefined ? cell.textContent.trim() : Number(given);
  };
  const compare = (a, b) => {
    const isEmpty = [a, b].map((one) => one === "" || one === "–");
    if (isEmpty[0] || isEmpty[1]) return null;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const isMissing = (one) => one === "" || one === "–";
      const sorted = rows.map((row) => [value(row, column), row]).sort(([a], [b]) => {
        const order = compare(a, b);
        return order === null ? isMissing(a) - isMissing(b) : direction * order; // rows without a value stay at the end
      });
      body.append(...sorted.map(([, row]) => row));
    });
  });
});
