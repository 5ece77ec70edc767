// Drives a server with the helpers of OpenAI's SDK for Node.js and prints what came of it as one JSON object.
// Arguments: base URL, model.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const question = "Where does the river rise?";
const chat = { model, messages: [{ role: "user", content: question }], temperature: 0 };
const response = { model, input: question, temperature: 0 };
const river = z.object({ name: z.enum(["Isar"]), isLong: z.literal(true) });
const riseOf = {
  name: "rise_of",
  description: "Where a river rises.",
  parameters: z.object({ river: z.enum(["Isar"]) }),
};
const once = { tool_choice: "required", parallel_tool_calls: false };
const seen = {};

const parsed = await client.chat.completions.parse({ ...chat, response_format: zodResponseFormat(river, "river") });
seen.object = [parsed.choices[0].message.parsed, parsed.choices[0].finish_reason];

const called = await client.chat.completions.parse({ ...chat, ...once, tools: [zodFunction(riseOf)] });
const [call] = called.choices[0].message.tool_calls;
seen.call = [call.function.name, call.function.parsed_arguments, called.choices[0].finish_reason];

const stream = client.chat.completions.stream({ ...chat, ...once, tools: [zodFunction(riseOf)] });
let pieces = "";
stream.on("tool_calls.function.arguments.delta", (event) => (pieces += event.arguments_delta));
const streamed = (await stream.finalChatCompletion()).choices[0];
seen.streamedCall = [JSON.parse(pieces), streamed.message.tool_calls[0].function.parsed_arguments];

const runner = client.chat.completions.runTools({
  ...chat,
  max_tokens: 60,
  tool_choice: { type: "function", function: { name: "rise_of" } },
  tools: [zodFunction({ ...riseOf, function: ({ river }) => (river === "Isar" ? "In the Alps." : "Elsewhere.") })],
});
await runner.done();
seen.run = runner.messages.map((message) => [message.role, message.tool_calls ? "call" : message.content]);

const whole = await client.responses.create({ ...response, max_output_tokens: 11 });
seen.response = [whole.output_text, whole.status, whole.usage.output_tokens];

const events = client.responses.stream({ ...response, max_output_tokens: 11 });
let text = "";
events.on("response.output_text.delta", (event) => (text += event.delta));
const final = await events.finalResponse();
seen.streamedResponse = [text, final.output_text];

const structured = await client.responses.parse({ ...response, text: { format: zodTextFormat(river, "river") } });
seen.responseObject = structured.output_parsed;

const asked = await client.responses.parse({ ...response, ...once, tools: [zodResponsesFunction(riseOf)] });
seen.responseCall = asked.output.map((item) => [item.type, item.name, item.parsed_arguments]);

console.log(JSON.stringify(seen));
