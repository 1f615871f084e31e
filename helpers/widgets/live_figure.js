// What a browser runs for a live figure, instead of plotly's module alone, which has 5 MB.
//
// anywidget gives a widget's module two seconds to load (AbortSignal.timeout(2000), still so in 0.11); after that it drops
// every message for the widget, and the figure stays empty axes. A busy machine needs longer for 5 MB. This module is
// there at once, loads plotly's from the trait `_plotly_module`, and tells it in order what the kernel said meanwhile.

const load = (text) => {
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return import(url).finally(() => URL.revokeObjectURL(url));
};

export default () => {
  let figure;

  const start = async (model) => {
    const told = [];
    const notes = model.get("_told_by").map((name) => [`change:${name}`, () => told.push([name, model.get(name)])]);
    for (const [event, note] of notes) model.on(event, note);
    const { default: widget } = await load(model.get("_plotly_module"));
    const plotly = typeof widget === "function" ? await widget() : widget;

    // From here on nothing waits, so nothing is told twice or missed.
    for (const [event, note] of notes) model.off(event, note);
    const handlers = [];
    let again = null;
    const heard = Object.assign(Object.create(model), {
      get: (name) => (again?.[0] === name ? again[1] : model.get(name)),
      on: (event, handler) => {
        handlers.push([event, handler]);
        model.on(event, handler);
      },
    });
    plotly.initialize({ model: heard });
    for (again of told) {
      for (const [event, handler] of [...handlers]) if (event === `change:${again[0]}`) handler();
    }
    again = null;
    return plotly;
  };

  return {
    initialize({ model }) {
      figure = start(model);
    },
    async render(view) {
      return (await figure).render(view);
    },
  };
};
