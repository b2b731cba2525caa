"use strict";
(function () {
  const read = (id) => {
    const node = document.getElementById(id);
    return node ? JSON.parse(node.textContent) : null;
  };
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));
  const make = (name, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const page = read("page-data");

  // Commands: a report that lies in its run's folder knows the folder's name once it is opened from disk.
  const folder = (() => {
    if (!page.beside_run || location.protocol !== "file:") return "DIR";
    const path = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "") || "/";
    return /^[\w@%+=:,./-]+$/.test(path) ? path : "'" + path.replace(/'/g, "'\\''") + "'";
  })();
  const command = (words) => "archplace " + words.replace("DIR", () => folder);
  all("code.command").forEach((node) => { node.textContent = command(node.dataset.words); });

  // Figures: colours follow the page's.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const text = colour("--text"), grid = colour("--grid");
    const change = { "font.color": text, "legend.font.color": text };
    Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key)).forEach((key) => {
      change[key + ".gridcolor"] = grid;
      change[key + ".linecolor"] = grid;
    });
    return change;
  };
  // Figures in which a click chooses a design.
  const choosing = new Set(["front-plot", "matrix-plot", "parallel-plot"]);
  const config = (node) => ({
    displaylogo: false, responsive: true, displayModeBar: choosing.has(node.id),
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
  const drawn = new Map();
  const draw = (node) => {
    if (drawn.has(node) || node.closest("[hidden]")) return;
    const figure = read(node.id + "-data");
    drawn.set(node, figure);
    node.textContent = "";
    Plotly.newPlot(node, figure.data, figure.layout, config(node)).then(() => Plotly.relayout(node, themed(figure.layout)));
    if (choosing.has(node.id)) {
      node.on("plotly_click", (event) => select(event.points[0].customdata, node.id !== "front-plot"));
    }
  };
  const recolour = () => drawn.forEach((figure, node) => {
    Plotly.relayout(node, themed(figure.layout));
    if (node.id.startsWith("memory-plot")) {
      Plotly.restyle(node, { "marker.line.color": colour("--text") }, [figure.data.length - 1]);
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  matchMedia("print").addEventListener("change", () => {
    recolour();
    drawn.forEach((figure, node) => Plotly.Plots.resize(node));
  });

  // Details of one design.
  const details = document.getElementById("details");
  const points = page.points;
  const fields = (id) => {
    for (const kind of ["front", "dominated", "baseline"]) {
      const found = points[kind] && points[kind].rows[id];
      if (found) return { kind: kind, pairs: points[kind].headings.map((heading, i) => [heading, found[i]]) };
    }
    return { kind: "bound", pairs: [] };
  };
  const words = {
    front: "on the front", dominated: "evaluated exactly, dominated", baseline: "baseline",
    bound: "not evaluated: even its bound is dominated",
  };
  const select = (id, scroll) => {
    const found = fields(id);
    details.replaceChildren();
    details.append(make("h3", (found.kind === "baseline" ? "" : "Design ") + id + " (" + words[found.kind] + ")"));
    if (found.kind === "bound") {
      details.append(make("p", "The command below prints its architecture, its bound and the design that dominates it."));
    }
    const line = make("p");
    ["show DIR " + id, "show DIR " + id + " --format json"].forEach((text) => {
      line.append(make("code", command(text), "command"), " ");
    });
    details.append(line);
    const columns = make("div", undefined, "columns");
    found.pairs.forEach(([heading, text]) => {
      const row = make("div");
      row.append(make("span", heading), make("span", text));
      columns.append(row);
    });
    details.append(columns);
    all("#front-table tr.selected").forEach((row) => row.classList.remove("selected"));
    const row = document.querySelector('#front-table tr[data-id="' + id + '"]');
    if (row) {
      row.classList.add("selected");
      if (!row.hidden) {
        const box = document.getElementById("front-table");
        box.scrollTop = Math.max(0, row.offsetTop - box.clientHeight / 2);
      }
    }
    if (scroll) details.scrollIntoView({ block: "center" });
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-select]");
    if (button) select(button.dataset.select, true);
  });

  // The table of the front.
  const table = document.querySelector("#front-table table");
  if (table) {
    const body = table.tBodies[0];
    const said = document.getElementById("table-status");
    const value = (row, column) => {
      const cell = row.cells[column];
      const number = cell.dataset.value;
      return number === undefined ? cell.textContent : Number(number);
    };
    all("thead button", table).forEach((button) => button.addEventListener("click", () => {
      const heading = button.closest("th");
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      all("thead th", table).forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const column = heading.cellIndex;
      const sign = ascending ? 1 : -1;
      const rows = all("tr", body).map((row, index) => [value(row, column), index, row]);
      rows.sort((a, b) => {
        const order = typeof a[0] === "number" && typeof b[0] === "number" ? a[0] - b[0] : String(a[0]).localeCompare(String(b[0]));
        return sign * order || a[1] - b[1];
      });
      rows.forEach((entry) => body.append(entry[2]));
      said.textContent = "Sorted by " + button.textContent + (ascending ? ", ascending." : ", descending.");
    }));
    const filter = document.getElementById("filter");
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      all("tr", body).forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      });
      said.textContent = shown + " of " + body.rows.length + " designs shown.";
    });
  }

  // The selector of the placement card.
  const selector = document.getElementById("placement-select");
  if (selector) {
    const show = () => {
      all("#placement [data-panel]").forEach((panel) => { panel.hidden = panel.dataset.panel !== selector.value; });
      all("#placement [data-panel]:not([hidden]) .plot").forEach(draw);
    };
    selector.addEventListener("change", show);
    show();
  }
  all(".plot").forEach(draw);
  if (page.first) select(page.first, false);
})();
