// Code and wide boxes on pages, in the book and in a batch: a button that copies code, and edges that fade where a
// box scrolls. Everything works from file://.
"use strict";
const blocks = (() => {
  // The clipboard's interface needs a secure page, which one from disk need not be.
  async function copied(source) {
    try {
      await navigator.clipboard.writeText(source);
      return true;
    } catch {
      const field = document.createElement("textarea");
      field.value = source;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      return done;
    }
  }

  /** Adds a button to a box that copies its code. */
  function addCopyButton(box, source) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "kw-copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      button.textContent = (await copied(source)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    box.classList.add("kw-code");
    box.append(button);
  }

  function fade(box) {
    const hides = /auto|scroll/.test(getComputedStyle(box).overflowX);
    box.classList.toggle("kw-fades", hides && box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  }

  function update(box) {
    const style = getComputedStyle(box);
    const scrolls = (box.scrollWidth > box.clientWidth && /auto|scroll/.test(style.overflowX))
      || (box.scrollHeight > box.clientHeight && /auto|scroll/.test(style.overflowY));
    if (scrolls && !box.hasAttribute("tabindex")) box.tabIndex = 0;
    fade(box);
  }

  /** Lets the keyboard scroll the boxes that a selector finds, and fades the edges behind which more follows. */
  function watchEdges(selector) {
    // A box gets another size with its window, with fonts that arrive late, and when a fold around it opens.
    const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => update(target)));
    const reach = () => document.querySelectorAll(selector).forEach((box) => {
      sizes.observe(box);
      update(box);
    });
    document.addEventListener("scroll", (event) => {
      if (event.target instanceof Element && event.target.matches(selector)) fade(event.target);
    }, { capture: true, passive: true });
    addEventListener("load", reach);
    document.addEventListener("input", reach);
    return reach;
  }

  return { addCopyButton, watchEdges };
})();
