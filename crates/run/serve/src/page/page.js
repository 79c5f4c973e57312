"use strict";

const byId = (id) => document.getElementById(id);
let messages = [];
let running = null;

const headers = () => {
  const key = byId("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

// What a model says is text and never becomes markup.
const show = (kind, text) => {
  const turn = document.createElement("p");
  turn.className = `turn ${kind}`;
  turn.textContent = text;
  byId("turns").append(turn);
  turn.scrollIntoView({ block: "end" });
  return turn;
};

const failure = async (response) => {
  if (response.status === 401) byId("key-row").hidden = false;
  const body = await response.json().catch(() => ({}));
  return new Error(body.error?.message ?? `status ${response.status}`);
};

const listModels = async () => {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) throw await failure(response);
  const { data } = await response.json();
  for (const error of document.querySelectorAll(".turn.error")) error.remove();
  byId("model").replaceChildren(...data.map(({ id }) => new Option(id)));
  if (!data.length) throw new Error("no model of this server generates texts");
};

// Calls `each` with the data of each event of a stream.
const readEvents = async (response, each) => {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data !== "[DONE]") each(JSON.parse(data));
    }
  }
};

const send = async (text) => {
  messages.push({ role: "user", content: text });
  show("user", text);
  const turn = show("assistant", "");
  running = new AbortController();
  byId("send").hidden = true;
  byId("stop").hidden = false;
  try {
    const body = JSON.stringify({ model: byId("model").value, messages, stream: true });
    const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body, signal: running.signal });
    if (!response.ok) throw await failure(response);
    await readEvents(response, ({ choices, error }) => {
      if (error) throw new Error(error.message);
      turn.textContent += choices[0]?.delta?.content ?? "";
    });
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  // A message without an answer is not a part of the conversation.
  if (turn.textContent) {
    messages.push({ role: "assistant", content: turn.textContent });
  } else {
    messages.pop();
    turn.remove();
  }
  running = null;
  byId("send").hidden = false;
  byId("stop").hidden = true;
};

const start = () => listModels().catch((error) => show("error", error.message));

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value;
  if (running || !text.trim()) return;
  byId("text").value = "";
  send(text);
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("key").addEventListener("change", start);
byId("clear").addEventListener("click", () => {
  running?.abort();
  messages = [];
  byId("turns").replaceChildren();
});
start();
