// Questions on a page: the reader answers in the question's form, the browser keeps the answer, and the folded
// answer on the same page opens and shows both. Works from file://. helpers/predict/views.py writes the markup.
"use strict";
(() => {
  const reveals = new Map([...document.querySelectorAll(".kw-reveal")].map((box) => [about(box).key, box]));

  function about(box) {
    return JSON.parse(box.dataset.kw);
  }

  // The same rules as helpers.predict.questions.read_number.
  function number(text, units) {
    let rest = text.trim().replace("\u2212", "-");
    for (const unit of units) if (unit && rest.endsWith(unit)) rest = rest.slice(0, -unit.length);
    rest = rest.trim().replace(/[%×x]+$/, "").trim();
    if (/^[+-]?\d{1,3}([ ,'_\u00a0\u202f]\d{3})+(\.\d+)?$/.test(rest)) rest = rest.replace(/[ ,'_\u00a0\u202f]/g, "");
    else if (!rest.includes(".") && rest.split(",").length === 2) rest = rest.replace(",", ".");
    return rest !== "" && Number.isFinite(Number(rest)) ? Number(rest) : null;
  }

  function words(answer, [one, many]) {
    if (typeof answer === "string") return answer;
    const numbers = [].concat(answer).map((n) => n.toLocaleString("en", { maximumSignificantDigits: 12 }));
    return `${[...new Set(numbers)].join(" to ")} ${answer === 1 ? one : many}`.trim();
  }

  function outcome(answer, { truth, measured }) {
    if (measured) return answer[0] <= truth && truth <= answer[1] ? ": ✓ inside the range" : ": outside the range";
    const near = typeof truth === "number" && !Number.isInteger(truth) && Math.abs(answer - truth) <= 0.01 * Math.abs(truth);
    return answer === truth || near ? ": ✓ right" : "";
  }

  function bold(text) {
    const element = document.createElement("b");
    element.textContent = text;
    return element;
  }

  function show(answer, key, units) {
    const reveal = reveals.get(key);
    if (!reveal) return;
    const verdict = reveal.querySelector(".kw-verdict");
    const truth = verdict.querySelector("b");
    verdict.replaceChildren("You said ", bold(words(answer, units)), "; it is ", truth, `${outcome(answer, about(reveal))}.`);
    reveal.querySelector("details").open = true;
  }

  for (const box of document.querySelectorAll(".kw-ask")) {
    const { key, units } = about(box);
    const fields = box.querySelector("fieldset");
    const status = box.querySelector("[role=status]");
    const inputs = [...fields.querySelectorAll("input")];
    const slot = `kernel-workbook.page-answer.${key}`;
    const asked = fields.querySelector("legend").textContent;

    function settle(answer) {
      fields.disabled = button.hidden = true;
      status.textContent = `You said ${words(answer, units)}. ${reveals.has(key) ? "The answer is below." : ""}`;
      show(answer, key, units);
    }

    function save() {
      const typed = inputs.filter((one) => one.type !== "radio" || one.checked).map((one) => one.value);
      const chosen = inputs[0].type === "radio";
      const numbers = chosen ? [] : typed.map((text) => number(text, units)).sort((a, b) => a - b);
      if (!typed.length || typed.some((text) => !text.trim()) || numbers.includes(null)) {
        status.textContent = chosen ? "Choose an answer first." : "That is not a number. Write it as 1,024 or 0.5.";
        return;
      }
      const answer = chosen ? typed[0] : numbers.length > 1 ? numbers : numbers[0];
      try {
        localStorage.setItem(slot, JSON.stringify({ asked, typed, answer }));
      } catch {} // storage is full or forbidden: this page shows the answer all the same
      settle(answer);
    }

    const button = document.createElement("button");
    button.type = "button";
    button.className = "kw-save";
    button.textContent = "Save";
    button.addEventListener("click", save);
    fields.append(button);
    fields.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || event.target === button) return;
      event.preventDefault();
      save();
    });
    status.textContent = "Answer first; this browser keeps what you say.";
    try {
      const kept = JSON.parse(localStorage.getItem(slot));
      if (kept?.asked !== asked) continue; // the question has changed since
      inputs.forEach((one, i) => {
        if (one.type === "radio") one.checked = kept.typed.includes(one.value);
        else one.value = kept.typed[i];
      });
      settle(kept.answer);
    } catch {} // nothing is kept, or something else
  }
})();
