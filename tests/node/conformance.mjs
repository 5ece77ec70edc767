// Drives a server with OpenAI's SDK for Node.js and prints what came of it as one JSON object.
// Arguments: base URL, model.
import OpenAI, { APIError } from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Where does the river rise?" }];
const chat = { model, messages, max_tokens: 6, temperature: 0 };
const seen = {};

const whole = await client.chat.completions.create(chat);
seen.whole = whole.choices;
seen.usage = whole.usage.total_tokens - whole.usage.prompt_tokens;

seen.deltas = [];
seen.usages = [];
for await (const chunk of await client.chat.completions.create({
  ...chat,
  stream: true,
  stream_options: { include_usage: true },
})) {
  if (chunk.choices.length) seen.deltas.push(chunk.choices[0].delta);
  seen.usages.push(chunk.usage ? chunk.usage.completion_tokens : null);
}

const runner = client.chat.completions.stream({ ...chat, max_tokens: 40, stop: " hills" });
const final = await runner.finalChatCompletion();
seen.helper = { content: final.choices[0].message.content, finish: final.choices[0].finish_reason };

const completion = { model, prompt: [[7], [7, 8]], max_tokens: 2, temperature: 0 };
seen.completion = (await client.completions.create(completion)).choices.map((choice) => choice.text);
seen.texts = ["", ""];
for await (const chunk of await client.completions.create({ ...completion, stream: true })) {
  seen.texts[chunk.choices[0].index] += chunk.choices[0].text;
}

seen.models = [];
for await (const found of client.models.list()) seen.models.push(found.id);
seen.model = (await client.models.retrieve(model)).owned_by;

const { response, request_id } = await client.chat.completions.create(chat).withResponse();
seen.headers = [response.headers.get("x-headrace-job").split("-").slice(0, 2), request_id.length];

const failing = {
  messages: () => client.chat.completions.create({ ...chat, messages: [] }),
  model: () => client.chat.completions.create({ ...chat, model: "gpt-7", stream: true }),
  context: () => client.completions.create({ ...completion, prompt: "long ".repeat(400) }),
  unserved: () => client.chat.completions.create({ ...chat, prediction: { type: "content", content: "x" } }),
};
seen.errors = {};
for (const [name, call] of Object.entries(failing)) {
  try {
    await call();
    seen.errors[name] = "none";
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    seen.errors[name] = [error.constructor.name, error.status, error.type, error.param, error.code];
  }
}

const stopped = await client.chat.completions.create({ ...chat, max_tokens: 300, stream: true });
for await (const chunk of stopped) {
  seen.stopped = chunk.choices[0].delta;
  break; // leaves the stream in its middle
}

console.log(JSON.stringify(seen));
