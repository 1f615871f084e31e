// The notebook page of a stand-in for Colab: it talks to the kernel, keeps the widgets' states, and passes
// comm messages on to the frames that show outputs. As in Colab, a frame has another origin than this page.

const SESSION = crypto.randomUUID().replaceAll("-", "");
const FRAMES = "https://output.colab.test";
const running = new Map(); // message id → what to do with its replies
const models = new Map(); // comm id → {state, listeners}
const frames = new Map(); // window of a frame → its iframe
let kernel, socket;

// Jupyter's messages: JSON, or, with buffers, their number and offsets, the JSON, and the buffers.
function encode(message, buffers) {
  if (!buffers.length) return JSON.stringify(message);
  const parts = [new TextEncoder().encode(JSON.stringify(message)), ...buffers.map((b) => new Uint8Array(b))];
  let offset = 4 * (parts.length + 1);
  const offsets = parts.map((part) => (offset += part.byteLength) - part.byteLength);
  const bytes = new Uint8Array(offset);
  [parts.length, ...offsets].forEach((n, i) => new DataView(bytes.buffer).setUint32(4 * i, n));
  parts.forEach((part, i) => bytes.set(part, offsets[i]));
  return bytes;
}

function decode(data) {
  if (typeof data === "string") return { buffers: [], ...JSON.parse(data) };
  const view = new DataView(data);
  const starts = Array.from({ length: view.getUint32(0) }, (_, i) => view.getUint32(4 * (i + 1)));
  const parts = starts.map((start, i) => data.slice(start, starts[i + 1]));
  return { ...JSON.parse(new TextDecoder().decode(parts[0])), buffers: parts.slice(1) };
}

function send(channel, type, content, buffers = [], handler = () => {}) {
  const header = { msg_id: crypto.randomUUID(), msg_type: type, session: SESSION, username: "", version: "5.3",
    date: new Date().toISOString() };
  const message = { header, parent_header: {}, metadata: {}, content, channel };
  return new Promise((idle) => {
    running.set(header.msg_id, { handler, idle });
    socket.send(encode(message, buffers));
  });
}

function put(state, paths = [], buffers = []) {
  paths.forEach((path, i) => {
    const last = path.at(-1);
    path.slice(0, -1).reduce((place, key) => place[key], state)[last] = buffers[i];
  });
  return state;
}

function receive({ data }) {
  const message = decode(data);
  const { content, buffers } = message;
  const type = message.header.msg_type;
  const known = running.get(message.parent_header.msg_id);
  if (type === "comm_open") models.set(content.comm_id,
    { state: put(content.data.state ?? {}, content.data.buffer_paths, buffers), listeners: [] });
  else if (type === "comm_msg") {
    const model = models.get(content.comm_id);
    if (!model) return;
    if (content.data.method === "update") Object.assign(model.state,
      put(structuredClone(content.data.state), content.data.buffer_paths, buffers));
    for (const port of model.listeners) port.postMessage({ data: content.data, buffers });
  } else if (type === "comm_close") models.get(content.comm_id)?.listeners.forEach((port) => port.postMessage(null));
  else if (type === "status" && content.execution_state === "idle") {
    running.delete(message.parent_header.msg_id);
    known?.idle();
  } else known?.handler(type, content);
}

// What a frame asks for: `port` then carries the comm's messages in both directions.
const answers = {
  getModelState({ id }, port) {
    const model = models.get(id);
    if (!model) return undefined;
    listen(id, model, port);
    return structuredClone(model.state);
  },
  async openCommChannel({ target, data, buffers }, port) {
    const id = crypto.randomUUID().replaceAll("-", "");
    const model = { state: data?.state ?? {}, listeners: [] };
    models.set(id, model);
    listen(id, model, port);
    await send("shell", "comm_open", { comm_id: id, target_name: target, data }, buffers);
    return id;
  },
};

function listen(id, model, port) {
  model.listeners.push(port);
  port.onmessage = async ({ data: { data, buffers, call } }) => {
    if (data.method === "update") Object.assign(model.state, structuredClone(data.state));
    await send("shell", "comm_msg", { comm_id: id, data }, buffers);
    port.postMessage({ done: call });
  };
}

addEventListener("message", async ({ data, source, ports, origin }) => {
  if (origin !== FRAMES) return;
  if (data.height !== undefined) frames.get(source).style.height = `${data.height}px`;
  else if (data.ready) frames.get(source).dispatchEvent(new Event("ready"));
  else ports[0].postMessage(await answers[data.ask](data, ports[1]));
});

async function start() {
  await fetch("/lab"); // sets the cookie that the server wants to see again
  const token = document.cookie.match(/_xsrf=([^;]+)/)[1];
  const post = (address, body) => fetch(address, { method: "POST", body: JSON.stringify(body),
    headers: { "X-XSRFToken": token, "Content-Type": "application/json" } });
  if (kernel) await post(`/api/kernels/${kernel}/restart`, {});
  else kernel = (await (await post("/api/kernels", { name: "colab" })).json()).id;
  socket?.close();
  socket = new WebSocket(`ws://${location.host}/api/kernels/${kernel}/channels?session_id=${SESSION}`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = receive;
  await new Promise((open) => (socket.onopen = open));
  models.clear();
}

// Run a cell and show its outputs in a frame of its own. Without `widgets`, show them as a viewer does that
// has none. Returns the outputs, and the frame's name.
async function run(code, widgets = true) {
  const name = `cell-${frames.size}`;
  const frame = document.createElement("iframe");
  Object.assign(frame, { name, src: `${FRAMES}/output.html`,
    sandbox: "allow-downloads allow-forms allow-modals allow-popups allow-same-origin allow-scripts" });
  const ready = new Promise((go) => frame.addEventListener("ready", go));
  document.querySelector("main").append(frame);
  frames.set(frame.contentWindow, frame);
  await ready;
  const outputs = [];
  await send("shell", "execute_request",
    { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false }, [],
    (type, content) => {
      if (!["display_data", "execute_result", "stream", "error"].includes(type)) return;
      outputs.push({ output_type: type, ...content });
      frame.contentWindow.postMessage({ output: outputs.at(-1), widgets }, FRAMES);
    });
  return { name, outputs };
}

const within = (seconds, work) => Promise.race([work, new Promise((_, no) =>
  setTimeout(() => no(new Error(`no answer from the kernel within ${seconds} s`)), 1000 * seconds))]);

window.colab = { start: () => within(60, start()), run: (...cell) => within(300, run(...cell)) };
