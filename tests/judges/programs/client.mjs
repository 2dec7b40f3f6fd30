// Real clients in TypeScript, as a program: `node client.mjs KIND`, with the cases as JSON as its
// input. See client.py, which does the same with the clients in Python.
import { createRequire } from "node:module";
import { json } from "node:stream/consumers";

// The packages are in the working directory.
const require = createRequire(process.cwd() + "/");
const STEP_MS = 15_000;
const SAMPLED = { role: "assistant", content: { type: "text", text: "Paris" }, model: "m" };
const ME = { name: "judge", version: "1.0.0" };

// Errors of a transport that belong to no request; the steps show what comes of them.
process.on("unhandledRejection", () => {});

function eventsOf() {
  const events = { counts: { progress: 0, log: 0 } };
  events.changed = new Promise((resolve) => { events.change = resolve; });
  return events;
}

function headers(key) {
  return { requestInit: { headers: { Authorization: `Bearer ${key}` } } };
}

// What mcp-remote logs last when it ends; its client only sees that the connection is closed.
let fatal = "";

async function sdk1(transport) {
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const types = require("@modelcontextprotocol/sdk/types.js");
  const events = eventsOf();
  const client = new Client(ME, { capabilities: { sampling: {} } });
  client.setRequestHandler(types.CreateMessageRequestSchema, async () => SAMPLED);
  client.setNotificationHandler(types.LoggingMessageNotificationSchema, async () => { events.counts.log++; });
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, async () => events.change());
  await client.connect(transport);
  const call = (params, options) => client.callTool(params, undefined, options);
  return { client, events, call };
}

async function client2(mode, { url, key }) {
  const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
  const events = eventsOf();
  const client = new Client(ME, { capabilities: { sampling: {} }, versionNegotiation: { mode } });
  client.setRequestHandler("sampling/createMessage", async () => SAMPLED);
  client.setNotificationHandler("notifications/message", async () => { events.counts.log++; });
  client.setNotificationHandler("notifications/tools/list_changed", async () => events.change());
  await client.connect(new StreamableHTTPClientTransport(new URL(url), headers(key)));
  return { client, events, call: (params, options) => client.callTool(params, options) };
}

function overHttp({ url, key }) {
  const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
  return new StreamableHTTPClientTransport(new URL(url), headers(key));
}

function overRemote({ url, key }) {
  const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [
      `${process.cwd()}/node_modules/mcp-remote/dist/proxy.js`,
      url, "--allow-http", "--transport", "http-only", "--header", "Authorization:${KEY}",
    ],
    env: { ...process.env, KEY: `Bearer ${key}` },
    stderr: "pipe",
  });
  let log = "";
  fatal = "";
  transport.stderr.on("data", (chunk) => {
    log += chunk;
    fatal = log.match(/Fatal error: .*/)?.[0] ?? "";
  });
  return transport;
}

const KINDS = {
  "sdk-1": (options) => sdk1(overHttp(options)),
  "client-2": (options) => client2("legacy", options),
  "client-2-auto": (options) => client2("auto", options),
  "mcp-remote": (options) => sdk1(overRemote(options)),
};

class Hung extends Error {}

async function bounded(promise) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Hung()), STEP_MS); });
  promise.catch(() => {});
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function take({ client, events, call }, [verb, tool, args]) {
  if (verb === "list") {
    return ["ok", (await client.listTools()).tools.map((each) => each.name).join(",")];
  }
  if (verb === "changed") {
    await events.changed;
    return ["ok", ""];
  }
  const options = { onprogress: () => { events.counts.progress++; } };
  const result = await call({ name: tool, arguments: args }, options);
  return [result.isError ? "result" : "ok", result.content[0].text];
}

async function attempt(kind, options) {
  const shown = [];
  let connection;
  const step = async (name, act) => {
    let outcome, text;
    try {
      [outcome, text] = await bounded(act());
    } catch (error) {
      [outcome, text] = error instanceof Hung ? ["hung", ""] : ["error", fatal || String(error)];
    }
    shown.push({ step: name, outcome, text });
    return outcome !== "hung" && (name !== "connect" || outcome === "ok");
  };
  let going = await step("connect", async () => {
    connection = await KINDS[kind](options);
    return ["ok", ""];
  });
  for (const each of options.steps) {
    const name = each.slice(0, 2).join(" ");
    if (going) {
      going = await step(name, () => take(connection, each));
    } else {
      shown.push({ step: name, outcome: "lost", text: "" });
    }
  }
  if (connection) {
    await step("close", async () => {
      // As a client does that ends its session, where it has one.
      await connection.client.transport?.terminateSession?.();
      await connection.client.close();
      return ["ok", ""];
    });
  }
  return { shown, events: connection?.events.counts ?? { progress: 0, log: 0 } };
}

const found = {};
for (const options of await json(process.stdin)) {
  found[options.name] = await attempt(process.argv[2], options);
}
console.log(JSON.stringify(found));
process.exit(0);
