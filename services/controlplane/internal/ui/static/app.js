// The page for people: it speaks AG-UI to an agent, and shows where conversations
// live. Everything that comes from outside is put into the page as text, never as
// markup; the server's policy refuses anything else.

const byId = (id) => document.getElementById(id);
const key = "cofferdam-session";
let token = sessionStorage.getItem(key) ?? "";
let running = null; // the AbortController of the run that is streamed

// element makes one with text and children.
function element(name, { text, className, ...rest } = {}, ...children) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  for (const [k, v] of Object.entries(rest)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function say(text) { byId("status").textContent = text; }

// Refused is an error of the API.
class Refused extends Error {
  constructor(status, error) {
    super([error?.message ?? `The server answered with ${status}.`, error?.detail].filter(Boolean).join(" "));
    this.status = status;
    this.code = error?.code ?? "";
  }
}

async function call(method, path, body, signal) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const res = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store" });
  if (res.ok) return res;
  let error;
  try { error = (await res.json()).error; } catch { /* another answer than this API's */ }
  if (res.status === 401) leave("The session is over. Sign in again.");
  throw new Refused(res.status, error);
}

const get = async (path) => (await call("GET", path)).json();

// events gives the data of each frame of a stream of server-sent events.
async function* events(res) {
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const frames = rest.split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const data = frame.split("\n").filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

// ---- the run

function line(className, text) {
  const e = element("p", { className, text });
  byId("log").append(e);
  e.scrollIntoView({ block: "nearest" });
  return e;
}

// Transcript writes the events of one run into the log.
class Transcript {
  constructor() { this.open = new Map(); this.ended = false; this.interrupts = []; }

  add(id, text) {
    const e = this.open.get(id);
    if (!e) return;
    e.append(text);
    e.scrollIntoView({ block: "nearest" });
  }

  take(e) {
    switch (e.type) {
      case "TEXT_MESSAGE_START": this.open.set(e.messageId, line("text", "")); break;
      case "TEXT_MESSAGE_CONTENT": this.add(e.messageId, e.delta); break;
      case "REASONING_MESSAGE_START": this.open.set(e.messageId, line("thinking", "")); break;
      case "REASONING_MESSAGE_CONTENT": this.add(e.messageId, e.delta); break;
      case "TOOL_CALL_START": this.open.set(e.toolCallId, line("tool", `${e.toolCallName} `)); break;
      case "TOOL_CALL_ARGS": this.add(e.toolCallId, e.delta); break;
      case "TOOL_CALL_RESULT": line("tool", `→ ${typeof e.content === "string" ? e.content : JSON.stringify(e.content)}`); break;
      case "CUSTOM": line("note", `${e.name}: ${JSON.stringify(e.value)}`); break;
      case "SUBAGENT_STARTED": line("note", "A subagent begins."); break;
      case "RUN_ERROR": this.ended = true; line("error", `The run failed: ${e.message} (${e.code})`); break;
      case "RUN_FINISHED":
        this.ended = true;
        this.interrupts = e.outcome?.interrupts ?? [];
        line("note", this.interrupts.length ? "The run waits for an answer." : `The run ended: ${e.outcome?.type ?? "success"}.`);
        break;
    }
  }
}

// stream shows one run until its end.
async function stream(open) {
  const mine = new AbortController();
  running?.abort();
  running = mine;
  byId("stop").disabled = false;
  byId("asks").replaceChildren();
  const t = new Transcript();
  try {
    for await (const e of events(await open(mine.signal))) t.take(e);
    if (!t.ended) line("error", "The stream broke before the run ended.");
    ask(t.interrupts);
  } catch (err) {
    if (err.name !== "AbortError") line("error", err.message);
  } finally {
    if (running === mine) {
      running = null;
      byId("stop").disabled = true;
    }
  }
}

function where() {
  return { agent: byId("agent").value, thread: byId("conversation").value };
}

// run starts a run, or answers what one has asked.
function run(extra) {
  const { agent, thread } = where();
  const input = {
    threadId: thread, runId: crypto.randomUUID(), messages: [], tools: [], context: [], state: {}, forwardedProps: {}, ...extra,
  };
  return stream((signal) => call("POST", `api/v1/agents/${encodeURIComponent(agent)}/agui`, input, signal));
}

// ---- what a run asks

// ask shows the questions of a run; all of them are answered at once.
function ask(interrupts) {
  const box = byId("asks");
  box.replaceChildren();
  if (!interrupts.length) return;
  const form = element("form", { id: "answer" });
  const answers = interrupts.map((i) => (i.metadata?.fields ? question(form, i) : approval(form, i)));
  const send = (resume) => { box.replaceChildren(); byId("message").focus(); run({ resume }); };
  form.addEventListener("submit", (ev) => {
    ev.preventDefault();
    try { send(answers.map((a) => a(ev.submitter?.value))); } catch (err) { say(err.message); }
  });
  if (interrupts.some((i) => i.metadata?.fields)) {
    form.append(element("button", { type: "submit", text: "Answer", value: "resolved" }), element("button", { type: "submit", text: "Dismiss", value: "cancelled", formnovalidate: "" }));
  } else if (interrupts.length > 1) {
    form.append(element("button", { type: "submit", text: "Send all decisions", value: "" }));
  }
  box.append(form);
  form.querySelector("button, input, select")?.focus();
}

// approval asks about one call. A single one is answered by its button, several by
// one choice each.
function approval(form, i) {
  const m = i.metadata ?? {};
  const several = m.interrupt_id !== i.id;
  const args = element("textarea", { rows: "4", "aria-label": `Arguments of ${m.tool_name}`, spellcheck: "false" });
  args.value = JSON.stringify(m.tool_args ?? {}, null, 2);
  const allowed = m.allowed_decisions ?? [];
  args.readOnly = !allowed.includes("edit");
  const set = element("fieldset", {}, element("legend", { text: i.message ?? "" }), args);
  const names = { approve: "Approve", edit: "Approve as edited", reject: "Reject" };
  const choice = element("select", { "aria-label": `Decision on ${m.tool_name}` });
  for (const d of allowed) {
    if (several) choice.append(element("option", { value: d, text: names[d] ?? d }));
    else set.append(element("button", { type: "submit", value: d, text: names[d] ?? d }), " ");
  }
  if (several) set.append(choice);
  form.append(set);
  return (pressed) => {
    const decision = several ? choice.value : pressed;
    const payload = { decision };
    if (decision === "edit") {
      try { payload.arguments = JSON.parse(args.value); } catch { throw new Error(`The arguments of ${m.tool_name} are not JSON.`); }
    }
    return { interruptId: i.id, status: "resolved", payload };
  };
}

// question asks for a form.
function question(form, i) {
  const inputs = new Map();
  const set = element("fieldset", {}, element("legend", { text: i.message ?? "" }));
  for (const f of i.metadata.fields) {
    let input;
    if (f.field_values?.length) {
      input = element("select", {}, ...f.field_values.map((v) => element("option", { value: v, text: v })));
    } else if (f.field_type === "boolean") {
      input = element("input", { type: "checkbox" });
    } else {
      input = element("input", { type: /^(integer|number)$/.test(f.field_type) ? "number" : "text", step: f.field_type === "number" ? "any" : "1" });
      if (f.placeholder) input.placeholder = f.placeholder;
    }
    if (f.default_value !== undefined && f.default_value !== null) {
      if (input.type === "checkbox") input.checked = f.default_value === true; else input.value = String(f.default_value);
    }
    if (f.required && input.type !== "checkbox") input.required = true;
    inputs.set(f, input);
    set.append(element("label", { text: f.field_label || f.field_name }, " ", input), " ");
    if (f.field_description) set.append(element("small", { text: f.field_description }));
  }
  form.append(set);
  return (pressed) => {
    if (pressed === "cancelled") return { interruptId: i.id, status: "cancelled" };
    const payload = {};
    for (const [f, input] of inputs) {
      if (input.type === "checkbox") payload[f.field_name] = input.checked;
      else if (input.value !== "") payload[f.field_name] = input.type === "number" ? Number(input.value) : input.value;
    }
    return { interruptId: i.id, status: "resolved", payload };
  };
}

// pending shows what a conversation waits for, as a stream would have asked it.
async function pending() {
  const { agent, thread } = where();
  const state = await get(`api/v1/conversations/${encodeURIComponent(thread)}/interrupt-state?agent_id=${encodeURIComponent(agent)}`);
  const i = state.interrupt;
  if (!i) { ask([]); return; }
  if (i.interrupt_type === "form_input") {
    ask([{ id: i.interrupt_id, message: i.prompt, metadata: { interrupt_id: i.interrupt_id, fields: i.fields } }]);
    return;
  }
  const calls = i.tool_approvals;
  ask(calls.map((c) => ({
    id: calls.length > 1 ? `${i.interrupt_id}/${c.tool_call_id}` : i.interrupt_id,
    message: `May the tool ${c.tool_name} be called?`,
    metadata: { interrupt_id: i.interrupt_id, tool_name: c.tool_name, tool_args: c.tool_args, allowed_decisions: c.allowed_decisions },
  })));
}

// ---- bindings

const rows = new Map();

// show puts what is known of a binding into its row, which stays where it is: what
// has the focus keeps it.
function show(b) {
  let cells = rows.get(b.binding_id);
  if (!cells) {
    cells = Array.from({ length: 9 }, () => element("td"));
    const watch = element("button", { type: "button", text: "Watch" });
    watch.addEventListener("click", () => {
      const id = watch.dataset.run;
      line("note", `Run ${id}`);
      stream(async (signal) => {
        try {
          return await call("GET", `api/v1/runs/${encodeURIComponent(id)}/stream?protocol=agui`, undefined, signal);
        } catch (err) {
          throw err.status === 404 ? new Error("This run belongs to another caller. Operators see where it lives, and not what it says.") : err;
        }
      });
    });
    cells.watch = watch;
    cells[6].append(element("span"), " ", watch);
    rows.set(b.binding_id, cells);
    byId("bindings").append(element("tr", {}, ...cells));
  }
  const put = (e, text) => { if (e.textContent !== text) e.textContent = text; };
  put(cells[0], b.binding_id);
  put(cells[1], `${b.agent_id} v${b.agent_version}`);
  put(cells[2], String(b.epoch));
  put(cells[3], String(b.lease_generation));
  put(cells[4], b.lease?.state ?? "none");
  put(cells[5], b.sandbox ? `${b.sandbox.instance_uid}${b.sandbox.pid ? ` (process ${b.sandbox.pid})` : ""}` : "none");
  put(cells[6].firstChild, b.run?.run_id ?? "");
  cells.watch.hidden = !b.run;
  cells.watch.dataset.run = b.run?.run_id ?? "";
  cells.watch.setAttribute("aria-label", `Watch the run of ${b.binding_id}`);
  put(cells[7], b.run ? String(b.run.events) : "");
  put(cells[8], (b.fence_refusals ?? []).map((r) => `${r.what} of generation ${r.lease_generation} at ${r.at}`).join("; "));
}

async function refresh() {
  const seen = new Set();
  for (let after = "", pages = 0; pages < 20; pages++) {
    const page = await get(`api/v1/bindings?limit=200${after && `&after=${encodeURIComponent(after)}`}`);
    for (const b of page.bindings) { show(b); seen.add(b.binding_id); }
    after = page.next_cursor ?? "";
    if (!after || page.bindings.length < 200) break;
  }
  for (const [id, cells] of rows) {
    if (!seen.has(id)) { cells[0].parentNode.remove(); rows.delete(id); }
  }
}

let polling = 0;
async function poll(round) {
  while (round === polling) {
    try {
      if (!document.hidden) await refresh();
    } catch (err) {
      if (round === polling) say(err.message);
    }
    await new Promise((done) => { setTimeout(done, 2000); });
  }
}

// ---- coming and going

function leave(why) {
  polling++;
  running?.abort();
  token = "";
  sessionStorage.removeItem(key);
  byId("main").hidden = true;
  byId("leave").hidden = true;
  byId("enter").hidden = false;
  byId("token").value = "";
  byId("token").focus();
  say(why);
}

async function enter() {
  const { agents } = await get("api/v1/agents");
  await refresh();
  sessionStorage.setItem(key, token);
  byId("agent").replaceChildren(...agents.map((a) => element("option", { value: a.agent_id, text: `${a.name || a.agent_id} v${a.version}` })));
  byId("conversation").value ||= `page-${crypto.randomUUID()}`;
  byId("enter").hidden = true;
  byId("main").hidden = false;
  byId("leave").hidden = false;
  say(agents.length ? "" : "There is no agent that you may use.");
  byId("message").focus();
  poll(++polling);
}

async function begin() {
  // The code of a link works once, and leaves no trace in the history.
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    try {
      const res = await fetch("session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }), cache: "no-store" });
      const answer = await res.json();
      if (!res.ok) throw new Refused(res.status, answer.error);
      token = answer.token;
    } catch (err) {
      leave(`The link does not work: ${err.message}`);
      return;
    }
  }
  if (!token) { leave(""); return; }
  try { await enter(); } catch (err) { leave(err.message); }
}

byId("enter").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  // The file that is for curl has the whole line of the header.
  token = byId("token").value.trim().replace(/^authorization:\s*bearer\s+/i, "");
  try { await enter(); } catch (err) { leave(err.message); }
});
byId("leave").addEventListener("click", async () => {
  if (token.startsWith("ui_")) await call("DELETE", "session").catch(() => {});
  leave("Signed out.");
});
byId("where").addEventListener("submit", (ev) => {
  ev.preventDefault();
  running?.abort();
  byId("log").replaceChildren();
  byId("asks").replaceChildren();
  pending().catch((err) => say(err.message));
});
byId("message").addEventListener("keydown", (ev) => {
  if (ev.key !== "Enter" || ev.shiftKey || ev.isComposing) return;
  ev.preventDefault();
  byId("say").requestSubmit();
});
byId("say").addEventListener("submit", (ev) => {
  ev.preventDefault();
  const message = byId("message").value;
  byId("message").value = "";
  line("user", message);
  run({ messages: [{ id: crypto.randomUUID(), role: "user", content: message }] });
});
byId("stop").addEventListener("click", async () => {
  const { agent, thread } = where();
  const mine = running;
  say("Stopping.");
  try {
    const res = await call("POST", "api/v1/chat/stream/cancel", { agent_id: agent, conversation_id: thread });
    const { cancelled } = await res.json();
    say("");
    if (!cancelled && mine && mine === running) {
      mine.abort(); // it was not there yet, and does not outlive who started it
      line("note", "Stopped.");
    }
  } catch (err) {
    say(err.message);
  }
});

begin();
