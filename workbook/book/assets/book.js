// The book's figures, code, finished lessons and explained terms; sliders are in explorer.js, copy buttons in blocks.js. Everything works from file://.
"use strict";
(() => {
  const here = document.currentScript.src.replace(/book\.js.*$/, "");
  const data = (element) => JSON.parse(element.textContent);
  // A page opened from disk cannot fetch others, so the search shows titles there, and excerpts on a server.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  // Screen readers read a range input's label, not its position.
  function said(input) {
    const label = input.dataset.labels ? JSON.parse(input.dataset.labels)[input.value] : input.value;
    input.setAttribute("aria-valuetext", label);
    const output = input.closest("label").querySelector("output");
    if (output) output.textContent = label;
  }

  // ---- Plotly figures: plotly.js loads when the first one comes near, and each is drawn when it does.
  let plotly = null;
  function load() {
    plotly ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = here + "plotly.min.js";
      script.onload = () => done(window.Plotly);
      script.onerror = failed;
      document.head.append(script);
    });
    return plotly;
  }
  // On a narrow page a legend to the right leaves no room for the plot, so it goes below.
  function fitted(layout, width) {
    const legend = layout.legend ?? {};
    if (width >= 900) return layout;
    if (legend.orientation !== "h") {
      layout.legend = { ...legend, orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom" };
    }
    if (width < 600) {
      layout.margin = { ...layout.margin, l: Math.min(layout.margin.l ?? 50, 50), r: 10 };
      layout.font = { ...layout.font, size: 11 };
    }
    return layout;
  }
  async function draw(figure) {
    const held = data(figure.querySelector('script[type="application/json"]'));
    const plot = figure.querySelector(".kw-plot");
    const Plotly = await load();
    // Heat maps side by side have numbers in their cells: if those don't fit, the figure scrolls.
    if (held.layout.xaxis2 && plot.clientWidth < 600) plot.style.minWidth = "680px";
    const layout = fitted({ ...held.layout, autosize: true }, plot.clientWidth);
    await Plotly.newPlot(plot, held.data, layout, { responsive: true, displayModeBar: false });
    figure.dataset.drawn = "";
    reach();
    for (const control of figure.querySelectorAll("[data-control]")) {
      control.addEventListener("input", () => {
        if (control.type === "range") said(control);
        const step = held.controls[control.dataset.control][control.value];
        if (step.method !== "skip") Plotly[step.method](plot, ...step.args);
      });
    }
  }
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "800px" });
  document.querySelectorAll(".kw-figure").forEach((figure) => near.observe(figure));
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll(".kw-figure:not([data-drawn])").forEach((figure) => { near.unobserve(figure); draw(figure); });
  });

  // ---- terms
  const tip = document.createElement("div");
  tip.id = "kw-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  function explain(link) {
    tip.textContent = link.dataset.meaning;
    tip.hidden = false;
    link.setAttribute("aria-describedby", tip.id);
    const box = link.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8));
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 6}px`;
  }
  function quiet() {
    tip.hidden = true;
    document.querySelectorAll("[aria-describedby='kw-tip']").forEach((link) => link.removeAttribute("aria-describedby"));
  }
  for (const link of document.querySelectorAll("a.kw-term")) {
    link.dataset.meaning = link.title;
    link.removeAttribute("title");  // or the browser would show it a second time
    for (const begin of ["pointerenter", "focus"]) link.addEventListener(begin, () => explain(link));
    for (const end of ["pointerleave", "blur"]) link.addEventListener(end, quiet);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") quiet(); });
  document.addEventListener("scroll", quiet, { passive: true });

  // ---- code: a block per line, which wraps with a hanging indent, and a button that copies the source
  for (const pre of document.querySelectorAll(".highlight pre")) {
    if (pre.closest(".output.stream, .output.text_plain")) continue;
    const source = pre.textContent.replace(/\n$/, "");
    const box = pre.parentElement;
    if (pre.closest(".cell_input")) wrapLines(pre);
    blocks.addCopyButton(box, source);
  }
  // Tokens may span lines, so each line is cut out of the tree with a Range, which closes and reopens them.
  function wrapLines(pre) {
    const ends = [];
    const texts = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      for (let i = text.data.indexOf("\n"); i >= 0; i = text.data.indexOf("\n", i + 1)) ends.push([text, i + 1]);
    }
    const lines = [];
    let start = [pre, 0];
    for (const end of [...ends, [pre, pre.childNodes.length]]) {
      const range = document.createRange();
      range.setStart(...start);
      range.setEnd(...end);
      const line = document.createElement("span");
      line.className = "kw-line";
      line.append(range.cloneContents());
      const indent = line.textContent.match(/^ */)[0].length;
      line.style.setProperty("--kw-indent", `${indent}ch`);
      lines.push(line);
      start = end;
    }
    if (!lines.at(-1).textContent.trim()) lines.pop();
    pre.replaceChildren(...lines);
  }

  // ---- finished lessons: stored in this browser, by page name
  const stored = "kernel-workbook:done";
  const finished = () => { try { return JSON.parse(localStorage.getItem(stored)) ?? {}; } catch { return {}; } };
  const lessonOf = (address) => new URL(address, location.href).pathname.match(/\/(?:notebooks|labs)\/[^/]+(?=\.html$)/)?.[0];
  function tick() {
    const done = finished();
    for (const link of document.querySelectorAll(".bd-sidebar-primary a.reference, .kw-map strong a")) {
      const isDone = Boolean(done[lessonOf(link.href)]);
      link.classList.toggle("kw-finished", isDone);
      if (isDone) link.title = "Done";
      else if (link.title === "Done") link.removeAttribute("title");
    }
  }
  const lesson = lessonOf(location.href);
  const article = document.querySelector("article.bd-article");
  if (lesson && article) {
    const label = document.createElement("label");
    label.className = "kw-done";
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = Boolean(finished()[lesson]);
    box.addEventListener("change", () => {
      const done = finished();
      if (box.checked) done[lesson] = true;
      else delete done[lesson];
      try { localStorage.setItem(stored, JSON.stringify(done)); } catch { /* this browser stores nothing */ }
      tick();
    });
    label.append(box, "Mark as done");
    article.append(label);
  }
  tick();

  // ---- the search page searches as one types; from disk, browsers refuse to read the excerpts of other pages
  const results = document.getElementById("search-results");
  const field = results && document.querySelector(".bd-main input[name=q]");
  let searching;
  field?.addEventListener("input", () => {
    clearTimeout(searching);
    searching = setTimeout(() => {
      results.replaceChildren();
      if (field.value.trim()) Search.performSearch(field.value.trim());
    }, 150);
  });

  // ---- the sidebar's folds have no name of their own
  for (const fold of document.querySelectorAll("summary:has(.toctree-toggle)")) {
    fold.ariaLabel = `Pages of ${fold.closest("li").querySelector("a").textContent}`;
  }

  // ---- boxes that scroll
  const reach = blocks.watchEdges(".kw-wide, .kw-html, .cell_output .output, pre, .kw-html pre, .kw-html div");
})();
