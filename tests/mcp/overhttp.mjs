// Offers an MCP server that speaks over stdio as one over streamable HTTP:
//
//   node overhttp.mjs COMMAND ARGS...
//
// Each session has a process of the server of its own. Messages are passed on as
// they are, so that what a client sees is the server's word and the official SDK's
// transport. The first line of stdout is the URL.
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";

const [command, ...args] = process.argv.slice(2);
const sessions = new Map();

async function open() {
  const child = new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
  const http = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, http),
  });
  const asked = new Map(); // which request of the client's a message of the server belongs to
  http.onmessage = (m) => {
    const token = m.params?._meta?.progressToken;
    if (token !== undefined) asked.set(token, m.id);
    child.send(m);
  };
  child.onmessage = (m) => {
    const relatedRequestId = m.method === "notifications/progress" ? asked.get(m.params.progressToken) : undefined;
    http.send(m, { relatedRequestId }).catch(() => {}); // its client may be gone
  };
  http.onclose = () => {
    sessions.delete(http.sessionId);
    child.close();
  };
  child.onclose = () => http.close();
  await child.start();
  await http.start();
  return http;
}

const server = createServer(async (req, res) => {
  const id = req.headers["mcp-session-id"];
  const http = id === undefined ? await open() : sessions.get(id);
  if (http === undefined) {
    res.writeHead(404).end();
    return;
  }
  await http.handleRequest(req, res);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
