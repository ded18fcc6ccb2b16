// Talks to AG-UI endpoints with the real client and says what it saw.
//
// Each line of standard input is a JSON array of conversations, each with a client of
// its own:
//   {"url", "header_file"?, "thread_id", "state"?, "turns": [{"run_id"?, "message" or "answer", "abort_after"?}]}
// header_file holds one header line, as `curl -H @FILE` takes it: a token is in
// no argument and no environment. abort_after is the type of an event after which
// the client goes away. An answer is the payload for every interrupt of the turn
// before it.
//
// Each is answered with a line of standard output: a JSON array with an array for each
// conversation, which has for each turn
//   events     every event that the client passed on, as it was after its checks
//   callbacks  the names of the callbacks, in their order
//   error      why the client gave the run up; empty if it did not
//   aborted    whether the client went away on purpose
//   warnings   what the client complained of
//   messages, state   what the client has after the turn
//   snapshot   {"before", "after"}: its messages around a MESSAGES_SNAPSHOT

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { HttpAgent } from '@ag-ui/client';

const said = [];
for (const level of ['warn', 'error']) {
  console[level] = (...words) => said.push(words.map(String).join(' ').slice(0, 500));
}

for await (const line of createInterface({ input: process.stdin })) {
  const conversations = [];
  for (const conversation of JSON.parse(line)) {
    conversations.push(await converse(conversation));
  }
  await new Promise((done) => process.stdout.write(JSON.stringify(conversations) + '\n', done));
}
process.exit(0);

async function converse(conversation) {
  const agent = new HttpAgent({
    url: conversation.url,
    headers: conversation.header_file ? header(readFileSync(conversation.header_file, 'utf8')) : {},
    threadId: conversation.thread_id,
    initialState: conversation.state ?? {},
  });
  const turns = [];
  for (const [index, turn] of conversation.turns.entries()) {
    turns.push(await play(agent, turn, index + 1));
  }
  return turns;
}

function header(line) {
  const colon = line.indexOf(':');
  if (colon < 0) throw new Error('the header file has no header line');
  return { [line.slice(0, colon).trim()]: line.slice(colon + 1).trim() };
}

async function play(agent, turn, number) {
  const out = { events: [], callbacks: [], error: '', aborted: false, warnings: [], messages: [], state: null, snapshot: null };
  said.length = 0;
  const input = turn.run_id ? { runId: turn.run_id } : {};
  if (turn.answer) {
    input.resume = agent.pendingInterrupts.map((i) => ({ interruptId: i.id, status: 'resolved', payload: turn.answer }));
  } else {
    agent.messages = [...agent.messages, { id: `user-${number}`, role: 'user', content: turn.message }];
  }
  const watch = new Proxy({}, {
    has: () => true,
    get: (_, name) => (typeof name === 'string' && name.startsWith('on') ? (p) => saw(name, p) : undefined),
  });
  function saw(name, params) {
    out.callbacks.push(name);
    if (name === 'onEvent') {
      out.events.push(structuredClone(params.event));
      if (out.snapshot && !out.snapshot.after) out.snapshot.after = structuredClone(params.messages);
      if (params.event.type === 'MESSAGES_SNAPSHOT') out.snapshot = { before: structuredClone(params.messages), after: null };
      if (params.event.type === turn.abort_after) {
        out.aborted = true;
        agent.abortRun();
      }
    }
    if (name === 'onRunFailed') out.error = params.error.message;
  }
  try {
    await agent.runAgent(input, watch);
  } catch (error) {
    out.error ||= error.message;
  }
  out.warnings = [...said];
  out.messages = structuredClone(agent.messages);
  out.state = structuredClone(agent.state);
  return out;
}
