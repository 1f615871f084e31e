// The field of one question. Its markup and everything that it shows are the kernel's; this module sends what was
// typed, keeps the stored answer in the browser, and gives the keyboard back to the notebook.

export default {
  render({ model, el }) {
    const form = document.createElement("form"); // keeps radio buttons of one name apart
    form.innerHTML = model.get("html");
    const fields = form.querySelector("fieldset");
    const inputs = [...fields.querySelectorAll("input")];
    const status = form.querySelector("[role=status]");
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.lmSuppressShortcuts = "true"; // JupyterLab has keys of its own for a focused button
    button.textContent = "Save";
    button.style.cssText = "font: inherit; color: inherit; background: transparent; border: 1px solid; " +
      "border-radius: 3px; padding: 1px 10px; margin: 4px 0; cursor: pointer";
    fields.append(button);
    let last; // what was typed when it was last sent or received

    const typed = () => inputs.filter((one) => one.type !== "radio" || one.checked).map((one) => one.value);
    const send = (content) => {
      try {
        model.send(content);
      } catch {
        status.textContent = "not saved: this field's kernel has stopped. Run the cell again.";
      }
    };
    const save = () => {
      last = String(typed());
      status.textContent = "saving …";
      send({ typed: typed() });
    };
    const showTyped = () => {
      const values = model.get("typed");
      inputs.forEach((one, i) => {
        if (one.type === "radio") one.checked = values.includes(one.value);
        else if (one !== document.activeElement) one.value = values[i];
      });
      last = String(values);
    };
    const show = () => {
      const entry = model.get("entry");
      fields.disabled = button.hidden = Boolean(entry.revealed);
      if (entry.question) keep(model.get("key"), entry);
      status.textContent = model.get("status");
    };

    model.on("change:typed", showTyped);
    model.on("change:entry", show);
    model.on("msg:custom", show); // the kernel has read what was sent
    button.addEventListener("click", save);
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      save();
      leave(el);
    });
    form.addEventListener("input", () => { status.textContent = "not saved yet: press Enter or Save."; });
    form.addEventListener("focusout", (event) => {
      if (!form.contains(event.relatedTarget) && String(typed()) !== last) save();
    });
    showTyped();
    show();
    // A new runtime has forgotten an answer that this browser still knows.
    const kept = model.get("entry").question ? null : recall(model.get("key"));
    if (kept) send({ kept });
    el.append(form);
  },
};

const slot = (key) => `kernel-workbook.answer.${key}`;

function keep(key, entry) {
  try {
    localStorage.setItem(slot(key), JSON.stringify(entry));
  } catch {} // storage is full or forbidden: the kernel has the answer
}

function recall(key) {
  try {
    return JSON.parse(localStorage.getItem(slot(key)));
  } catch {
    return null;
  }
}

// In JupyterLab and Notebook 7 the next cell gets the focus, so that Shift+Enter runs it.
function leave(el) {
  document.activeElement?.blur();
  const cell = el.closest(".jp-Cell");
  const next = cell?.nextElementSibling;
  (next?.matches(".jp-Cell") ? next : cell)?.focus({ preventScroll: true });
}
