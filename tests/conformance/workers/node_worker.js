// OpenAI's client for JavaScript and Hugging Face's Jinja: one JSON object on each line, as in line_server.py. T2C_NODE_PACKAGES is the folder with both.
const packages = require("module").createRequire(process.env.T2C_NODE_PACKAGES + "/");
const OpenAI = packages("openai");
const { Template } = packages("@huggingface/jinja");

const client = (url) => new OpenAI({ baseURL: `http://${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 120000 });

async function all(stream) {
  const found = [];
  for await (const part of stream) found.push(part);
  return found;
}

const functions = {
  models: async ({ url }) => (await all(client(url).models.list())).map((model) => model.id),
  completion: ({ url, body }) => client(url).completions.create(body),
  completion_stream: async ({ url, body }) => all(await client(url).completions.create({ ...body, stream: true })),
  chat: ({ url, body }) => client(url).chat.completions.create(body),
  // The client puts the chunks together itself.
  chat_stream: ({ url, body }) => client(url).chat.completions.stream(body).finalChatCompletion(),
  response: ({ url, body }) => client(url).responses.create(body),
  response_stream: ({ url, body }) => client(url).responses.stream(body).finalResponse(),
  refused: async ({ url, body }) => {
    try {
      await client(url).chat.completions.create(body);
    } catch (error) {
      return { class: error.constructor.name, status: error.status, param: error.param, code: error.code };
    }
    throw new Error("it was answered");
  },
  render: ({ template, variables }) => {
    try {
      return new Template(template).render(variables);
    } catch {
      return null;
    }
  },
};

async function main() {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line);
    let answer;
    try {
      answer = { ok: (await functions[name](request)) ?? null };
    } catch (error) {
      answer = { error: String(error.stack) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
}

main();
