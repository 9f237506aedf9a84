// The table of parameters: search by name, sort by any column.

const body = byId("table").tBodies[0];
const rows = Array.from(body.rows);
const nameOf = (row) => row.cells[0].textContent;

byId("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  let count = 0;
  for (const row of rows) {
    row.hidden = !nameOf(row).toLowerCase().includes(wanted);
    count += !row.hidden;
  }
  byId("found").textContent = wanted ? `${whole(count)} of ${whole(rows.length)}` : "";
});

const value = (row, column) => Number.parseFloat(row.cells[column].textContent.replace("−", "-"));
const natural = new Intl.Collator("en", { numeric: true });

function sortBy(column, falling) {
  const sign = falling ? -1 : 1;
  rows.sort((a, b) => {
    if (column === 0) return sign * natural.compare(nameOf(a), nameOf(b));
    const x = value(a, column), y = value(b, column);
    return Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : sign * (x - y);
  });
  body.append(...rows);
}

const heads = Array.from(byId("table").tHead.rows[0].cells);
heads.forEach((head, column) => {
  if (head.classList.contains("plain")) return;
  const label = head.textContent;
  const button = element("button", { type: "button", title: `Sort by ${label}` }, label);
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) {
      if (!other.classList.contains("plain")) other.setAttribute("aria-sort", "none");
      const sign = other.querySelector("span");
      if (sign) sign.remove();
    }
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    button.append(element("span", { "aria-hidden": "true" }, falling ? " ▼" : " ▲"));
    sortBy(column, falling);
  });
});
