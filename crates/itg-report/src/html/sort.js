"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      const number = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      const order = (a, b) => {
        if (!number) return key(a).localeCompare(key(b));
        return (key(a) === "" ? -Infinity : Number(key(a))) - (key(b) === "" ? -Infinity : Number(key(b)));
      };
      rows.sort((a, b) => (down ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...rows);
    });
  });
}
