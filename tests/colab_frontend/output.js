// A frame with one cell's outputs. It loads the widget manager that an output names in its metadata, and gives
// it the environment of the manager's `api.ts`.

const WIDGET = "application/vnd.jupyter.widget-view+json";
const area = document.getElementById("output-area");
const managers = new Map();

function ask(question) {
  const answer = new MessageChannel();
  const comm = new MessageChannel();
  return new Promise((resolve) => {
    answer.port1.onmessage = ({ data }) => resolve([data, comm.port1]);
    parent.postMessage(question, "*", [answer.port2, comm.port2]);
  });
}

// A comm whose `messages` several readers can iterate, each over all of them.
function channel(port) {
  const received = [];
  const waiting = new Map();
  let wake = [];
  let calls = 0;
  port.onmessage = ({ data }) => {
    if (data?.done !== undefined) return void waiting.get(data.done)();
    received.push(data);
    wake.splice(0).forEach((go) => go());
  };
  return {
    send(data, opts) {
      const call = calls++;
      return new Promise((done) => {
        waiting.set(call, done);
        port.postMessage({ data, buffers: opts?.buffers ?? [], call });
      });
    },
    close() {},
    messages: {
      async *[Symbol.asyncIterator]() {
        for (let i = 0; ; i++) {
          while (i >= received.length) await new Promise((go) => wake.push(go));
          if (received[i] === null) return;
          yield received[i];
        }
      },
    },
  };
}

const environment = {
  async getModelState(id) {
    const [state, port] = await ask({ ask: "getModelState", id });
    return state && { modelName: state._model_name, modelModule: state._model_module,
      modelModuleVersion: state._model_module_version, state, comm: channel(port) };
  },
  async openCommChannel(target, data, buffers = []) {
    const [, port] = await ask({ ask: "openCommChannel", target, data, buffers });
    return channel(port);
  },
  renderOutput: (output, destination) => show(output, destination, true),
};

async function manager(url) {
  if (!managers.has(url)) managers.set(url,
    import(url).then((module) => module.createWidgetManager(environment)));
  return managers.get(url);
}

function text(destination, words) {
  const element = destination.appendChild(document.createElement("pre"));
  element.textContent = words;
}

async function show(output, destination, widgets) {
  const { data = {}, metadata = {} } = output;
  const joined = (value) => [value].flat().join("");
  if (output.output_type === "stream") text(destination, joined(output.text));
  else if (output.output_type === "error") text(destination, `${output.ename}: ${output.evalue}`);
  else if (widgets && data[WIDGET]) {
    const url = metadata[WIDGET]?.colab?.custom_widget_manager?.url;
    if (!url) return text(destination, "Third party widgets need a custom widget manager.");
    await (await manager(url)).render(data[WIDGET].model_id, destination);
  } else if (data["text/html"]) {
    destination.append(document.createRange().createContextualFragment(joined(data["text/html"])));
  } else if (data["image/svg+xml"]) destination.insertAdjacentHTML("beforeend", joined(data["image/svg+xml"]));
  else text(destination, joined(data["text/plain"] ?? ""));
}

addEventListener("message", ({ data }) => {
  if (!data.output) return;
  const place = area.appendChild(document.createElement("div"));
  show(data.output, place, data.widgets).catch((error) => {
    console.error(error);
    text(place, String(error));
  });
});
new ResizeObserver(() => parent.postMessage({ height: Math.ceil(document.body.scrollHeight) }, "*")).observe(area);
parent.postMessage({ ready: true }, "*");
