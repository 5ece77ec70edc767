// Drives a server with Vercel's AI SDK and prints what came of it as one JSON object.
// Arguments: base URL, model.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "headrace",
  baseURL,
  apiKey: "none",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const asked = { model: provider(name), prompt: "Where does the river rise?", temperature: 0, maxRetries: 0 };
const short = { ...asked, maxOutputTokens: 11 };
const seen = {};

const whole = await generateText(short);
seen.whole = [whole.text, whole.finishReason, whole.usage.outputTokens];

const stream = streamText(short);
seen.pieces = [];
for await (const piece of stream.textStream) seen.pieces.push(piece);
seen.streamed = [await stream.text, await stream.finishReason, (await stream.usage).outputTokens];

const completion = await generateText({ ...short, model: provider.completionModel(name), prompt: "The mill." });
seen.completion = [completion.usage.inputTokens, completion.text, completion.finishReason];

const river = z.object({ name: z.enum(["Isar"]), isLong: z.literal(true) });
seen.object = (await generateText({ ...asked, output: Output.object({ schema: river }) })).output;

const riseOf = tool({
  description: "Where a river rises.",
  inputSchema: z.object({ river: z.enum(["Isar"]) }),
  execute: async ({ river }) => (river === "Isar" ? "In the Alps." : "Elsewhere."),
});
const agent = {
  ...asked,
  tools: { riseOf },
  stopWhen: isStepCount(3),
  maxOutputTokens: 60,
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: "tool", toolName: "riseOf" } : "auto" }),
};

function told(steps) {
  return steps.map(({ text, finishReason, toolCalls, toolResults, usage }) => ({
    text,
    finishReason,
    calls: toolCalls.map((call) => [call.toolName, call.input]),
    results: toolResults.map((result) => result.output),
    tokens: [usage.inputTokens, usage.outputTokens],
  }));
}

seen.steps = told((await generateText(agent)).steps);
const streamedAgent = streamText(agent);
await streamedAgent.consumeStream();
seen.streamedSteps = told(await streamedAgent.steps);

try {
  await generateText({ ...asked, model: provider("gpt-7") });
} catch (error) {
  if (!APICallError.isInstance(error)) throw error;
  seen.error = [error.statusCode, error.message, error.isRetryable];
}

console.log(JSON.stringify(seen));
