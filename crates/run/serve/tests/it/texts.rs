//! Texts: OpenAI's completions over sockets, of a model whose tokens are bytes.

use std::sync::Arc;

use runtime::{Runnable, RunnableOptions};
use serde_json::{Value, json};
use serve::{ModelSource, RequestLimits, ServeOptions};

use crate::cartons::decoder;
use crate::client::{Client, request};
use crate::harness::{Echo, Running};

/// A tokenizer of the 256 bytes.
fn tokenizer() -> String {
    let is_printable = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..256).filter(|byte| !is_printable(byte)).zip(0x100..);
    let chars = (0..256).filter(is_printable).map(|byte| (byte, byte)).chain(others);
    let vocab: serde_json::Map<String, Value> =
        chars.map(|(byte, c)| (char::from_u32(c).expect("a character").to_string(), byte.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    })
    .to_string()
}

const TEMPLATE: &str = "{% if tools %}{{ tools | length }} tools {% endif %}{% for message in messages %}{% if message.role == 'x' %}\
                        {{ raise_exception('no x') }}{% endif %}<{{ message.role }}>{{ message.content }}{% for call in message.tool_calls or [] %}\
                        {{ '<tool_call>\n{\"name\": \"' ~ call.function.name ~ '\", \"arguments\": ' ~ call.function.arguments | tojson ~ '}\n</tool_call>' }}\
                        {% endfor %}{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

/// A server of the model `m`, and of `none`, which generates no texts.
pub(crate) fn serve(change: impl Fn(&mut ServeOptions)) -> Running {
    serve_with(TEMPLATE, change)
}

pub(crate) fn serve_with(template: &str, change: impl Fn(&mut ServeOptions)) -> Running {
    let mut options = ServeOptions::default();
    change(&mut options);
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer()).expect("it is written");
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("it is written");
    let carton = decoder(folder.path());
    let runnable = Runnable::open(&carton, &RunnableOptions::default(), &()).expect("a carton of ours");
    let limits =
        RequestLimits { positions: Some(4096), memory: options.limits.memory, ..RequestLimits::default() };
    let model = serve::carton_model(runnable, &limits).expect("KServe has its dtypes");
    Running::with_models(
        ModelSource::Fixed(vec![("m".to_owned(), model), ("none".to_owned(), Arc::new(Echo))]),
        change,
    )
}

fn ask(client: &mut Client, body: &Value) -> Value {
    ask_at(client, "/v1/completions", body)
}

pub(crate) fn ask_at(client: &mut Client, path: &str, body: &Value) -> Value {
    let reply = client.post(path, &[], body.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()
}

/// The data of the events of a stream.
fn events(client: &mut Client, body: &Value) -> Vec<Value> {
    events_at(client, "/v1/completions", body)
}

pub(crate) fn events_at(client: &mut Client, path: &str, body: &Value) -> Vec<Value> {
    let reply = client.post(path, &[], body.to_string().as_bytes());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let text = String::from_utf8(reply.body).expect("it is text");
    let mut data: Vec<&str> =
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").expect("data")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

pub(crate) fn with(body: &Value, members: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
    body
}

fn text_of(answer: &Value, choice: usize) -> &str {
    answer["choices"][choice]["text"].as_str().expect("a text")
}

pub(crate) fn greedy() -> Value {
    json!({"model": "m", "prompt": "Once upon", "temperature": 0, "max_tokens": 12})
}

#[test]
fn models_that_generate_texts_are_listed() {
    let server = serve(|_| {});
    let mut client = server.client();
    let list = client.get("/v1/models").json();
    assert_eq!((&list["object"], list["data"].as_array().map(Vec::len)), (&json!("list"), Some(1)));
    assert_eq!(list["data"][0]["id"], "m");
    assert_eq!(client.get("/v1/models/m").json(), list["data"][0]);
}

#[test]
fn a_completion_has_the_members_that_clients_read() {
    let server = serve(|_| {});
    let mut client = server.client();
    let answer = ask(&mut client, &greedy());
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("m")));
    assert!(answer["id"].as_str().is_some_and(|id| id.starts_with("cmpl-")) && answer["created"].is_u64());
    assert_eq!(answer["usage"], json!({"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}));
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(0), &Value::Null));
    assert_eq!(choice["finish_reason"], "length");

    // Ids, lists, and null for what is left out.
    let ids: Vec<u8> = b"Once upon".to_vec();
    let same = [
        json!({"prompt": ids}),
        json!({"prompt": [ids]}),
        json!({"prompt": ["Once upon"], "stop": null, "n": null}),
    ];
    for members in same {
        assert_eq!(
            text_of(&ask(&mut client, &with(&greedy(), &members)), 0),
            text_of(&answer, 0),
            "{members}"
        );
    }
    let short = ask(&mut client, &with(&greedy(), &json!({"max_tokens": null})));
    assert_eq!(short["usage"]["completion_tokens"], 16);
}

#[test]
fn choices_of_several_prompts_are_in_order() {
    let server = serve(|_| {});
    let mut client = server.client();
    let body =
        json!({"model": "m", "prompt": ["a", "bcd"], "n": 3, "seed": 7, "max_tokens": 9, "echo": true});
    let answer = ask(&mut client, &body);
    let choices = answer["choices"].as_array().expect("a list");
    assert_eq!(choices.len(), 6);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        let prompt = if index < 3 { "a" } else { "bcd" };
        assert!(choice["text"].as_str().is_some_and(|text| text.starts_with(prompt)), "{choice}");
    }
    assert_eq!(answer["usage"]["prompt_tokens"], 4);
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    // The same again, and another one with another seed.
    assert_eq!(ask(&mut client, &body)["choices"], answer["choices"]);
    assert_ne!(ask(&mut client, &with(&body, &json!({"seed": 8})))["choices"], answer["choices"]);
}

#[test]
fn a_stream_has_the_text_of_the_whole() {
    let server = serve(|_| {});
    let mut client = server.client();
    let body = with(&greedy(), &json!({"n": 2, "temperature": 1, "seed": 3, "logprobs": 2}));
    let whole = ask(&mut client, &body);
    let chunks = events(&mut client, &with(&body, &json!({"stream": true})));
    let (mut texts, mut tokens) = ([String::new(), String::new()], [Vec::new(), Vec::new()]);
    for chunk in &chunks {
        assert_eq!((&chunk["id"], &chunk["created"]), (&chunks[0]["id"], &chunks[0]["created"]));
        assert!(chunk.get("usage").is_none());
        let choice = &chunk["choices"][0];
        let index = usize::try_from(choice["index"].as_u64().expect("a number")).expect("small");
        texts[index].push_str(choice["text"].as_str().expect("a text"));
        tokens[index].extend(choice["logprobs"]["tokens"].as_array().into_iter().flatten().cloned());
    }
    for index in 0..2 {
        assert_eq!(texts[index], text_of(&whole, index));
        assert_eq!(json!(tokens[index]), whole["choices"][index]["logprobs"]["tokens"]);
    }
    // The connection lives on, and usage comes in a chunk of its own.
    let members = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = events(&mut client, &with(&greedy(), &members));
    let (last, others) = chunks.split_last().expect("chunks");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(21)));
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
}

#[test]
fn a_stop_is_no_part_of_the_answer() {
    let server = serve(|_| {});
    let mut client = server.client();
    let body =
        with(&greedy(), &json!({"logit_bias": {"97": 100, "98": 100, "99": 99}, "frequency_penalty": 1}));
    // The biases leave a, b and c, and the penalty takes turns.
    let whole = text_of(&ask(&mut client, &body), 0).to_owned();
    assert!(whole.bytes().all(|byte| b"abc".contains(&byte)), "{whole}");
    let stop = &whole[4..6];
    let first = whole.find(stop).expect("it is there");
    for stream in [false, true] {
        let body = with(&body, &json!({"stop": [stop, "never"], "stream": stream, "logprobs": 0}));
        let (text, reason, tokens) = if stream {
            let chunks = events(&mut client, &body);
            let text: String = chunks.iter().map(|chunk| text_of(chunk, 0)).collect();
            let tokens: usize = chunks
                .iter()
                .filter_map(|chunk| chunk["choices"][0]["logprobs"]["tokens"].as_array())
                .map(Vec::len)
                .sum();
            (text, chunks.last().expect("chunks")["choices"][0]["finish_reason"].clone(), tokens)
        } else {
            let answer = ask(&mut client, &body);
            let tokens = answer["choices"][0]["logprobs"]["tokens"].as_array().map_or(0, Vec::len);
            (text_of(&answer, 0).to_owned(), answer["choices"][0]["finish_reason"].clone(), tokens)
        };
        assert_eq!((text.as_str(), reason, tokens), (&whole[..first], json!("stop"), first));
    }
}

#[test]
fn echoed_prompts_have_probabilities() {
    let server = serve(|_| {});
    let mut client = server.client();
    let prompt = "é, and more text than goes at once through the model";
    let body = json!({"model": "m", "prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0});
    let answer = ask(&mut client, &body);
    let logprobs = &answer["choices"][0]["logprobs"];
    let list = |name: &str| logprobs[name].as_array().expect("a list").clone();
    assert_eq!(list("tokens").len(), prompt.len() + 1);
    assert_eq!(list("tokens")[..3], [json!("bytes:\\xc3"), json!("bytes:\\xa9"), json!(",")]);
    assert_eq!((&list("token_logprobs")[0], &list("top_logprobs")[0]), (&Value::Null, &Value::Null));
    assert_eq!(list("text_offset")[..5], [json!(0), json!(0), json!(1), json!(2), json!(3)]);
    for (logprob, top) in list("token_logprobs").iter().zip(list("top_logprobs")).skip(1) {
        let best =
            top.as_object().expect("an object").values().filter_map(Value::as_f64).fold(f64::MIN, f64::max);
        assert!(logprob.as_f64().is_some_and(|logprob| logprob <= best), "{logprob} {top}");
    }
    // Each is what a completion of the text before gives.
    let cut = 20;
    let before =
        json!({"model": "m", "prompt": &prompt[..cut], "logprobs": 5, "max_tokens": 1, "temperature": 0});
    let before = ask(&mut client, &before);
    let best = before["choices"][0]["logprobs"]["token_logprobs"][0].as_f64().expect("a number");
    let echoed = list("top_logprobs")[cut]
        .as_object()
        .expect("an object")
        .values()
        .filter_map(Value::as_f64)
        .fold(f64::MIN, f64::max);
    assert!((best - echoed).abs() < 1e-4, "{best} {echoed}");

    let none = ask(&mut client, &with(&body, &json!({"max_tokens": 0})));
    assert_eq!((text_of(&none, 0), &none["usage"]["completion_tokens"]), (prompt, &json!(0)));
}

#[test]
fn errors_name_the_member() {
    let server = serve(|_| {});
    let mut client = server.client();
    let cases = [
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": true}), "temperature"),
        (json!({"top_p": 1.5}), "top_p"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"n": 0}), "n"),
        (json!({"n": "1"}), "n"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_tokens": true}), "max_tokens"),
        (json!({"logprobs": 21}), "logprobs"),
        (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
        (json!({"stop": 5}), "stop"),
        (json!({"frequency_penalty": 3}), "frequency_penalty"),
        (json!({"logit_bias": {"256": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"suffix": "x"}), "suffix"),
        (json!({"no_such_member": {}}), "no_such_member"),
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": [256]}), "prompt"),
        (json!({"prompt": ["a", 1]}), "prompt"),
        (json!({"model": null}), "model"),
        (json!({"model": "none"}), "model"),
    ];
    for (members, param) in cases {
        for stream in [false, true] {
            let body = with(&with(&greedy(), &json!({"stream": stream})), &members);
            if param == "stream_options" && stream {
                continue;
            }
            let reply = client.post("/v1/completions", &[], body.to_string().as_bytes());
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{members}: {error}");
            assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &Value::Null));
            assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
        }
    }
    assert_eq!(
        ask(&mut client, &with(&greedy(), &json!({"suffix": null, "user": "u"})))["object"],
        "text_completion"
    );
}

#[test]
fn other_errors_have_the_same_form() {
    let server = serve(|options| options.limits.body = 4000);
    let mut client = server.client();
    let mut refused = |method: &str, path: &str, body: &str| {
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let reply = client.reply();
        let error = reply.json()["error"].clone();
        for member in ["message", "type", "param", "code"] {
            assert!(error.get(member).is_some(), "{path}: {error}");
        }
        (reply.status, error["code"].clone())
    };
    let model = with(&greedy(), &json!({"model": "x"})).to_string();
    assert_eq!(refused("POST", "/v1/completions", &model), (404, json!("model_not_found")));
    assert_eq!(refused("GET", "/v1/models/x", ""), (404, json!("model_not_found")));
    let long = with(&greedy(), &json!({"max_tokens": 4096})).to_string();
    assert_eq!(refused("POST", "/v1/completions", &long), (400, json!("context_length_exceeded")));
    assert_eq!(refused("GET", "/v1/unknown", ""), (404, json!("unknown_url")));
    assert_eq!(refused("GET", "/v1", ""), (404, json!("unknown_url")));
    assert_eq!(refused("GET", "/v1/completions", ""), (405, Value::Null));
    assert_eq!(refused("POST", "/v1/completions", "{"), (400, Value::Null));
    assert_eq!(refused("POST", "/v1/completions", "[]"), (400, Value::Null));
    assert_eq!(refused("POST", "/v1/completions", &"x".repeat(5000)), (413, json!("request_too_large")));
    // Triton's routes keep their form.
    assert!(server.client().get("/v2/unknown").json()["error"].is_string());
}

fn texts(server: &Running) -> u64 {
    let text = String::from_utf8(server.client().get("/metrics").body).expect("it is text");
    let line = text.lines().find(|line| line.starts_with("torch2carton_texts{model=\"m\"")).expect("a gauge");
    line.rsplit_once(' ').expect("a number").1.parse().expect("a number")
}

#[test]
fn a_client_that_goes_away_leaves_its_place() {
    let server = serve(|options| options.limits.queue = 1);
    for stream in [false, true] {
        let mut client = server.client();
        let long = with(&greedy(), &json!({"max_tokens": 4000, "stream": stream}));
        client.send(request("/v1/completions", &[], long.to_string().as_bytes()));
        while texts(&server) == 0 {
            std::thread::yield_now();
        }
        let reply = server.client().post("/v1/completions", &[], greedy().to_string().as_bytes());
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
        drop(client);
        while texts(&server) > 0 {
            std::thread::yield_now();
        }
        ask(&mut server.client(), &greedy());
    }
}

#[test]
fn memory_that_is_reserved_is_an_error_at_once() {
    // Keys and values of 64 tokens in 2 layers with 4 heads of 16.
    let block = 2 * 64 * 2 * 4 * 16 * 4;
    let server = serve(|options| options.limits.memory = 3 * block);
    let mut client = server.client();
    let never = with(&greedy(), &json!({"max_tokens": 300}));
    let reply = client.post("/v1/completions", &[], never.to_string().as_bytes());
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("max_tokens")));
    let never = with(&greedy(), &json!({"n": 4}));
    assert_eq!(client.post("/v1/completions", &[], never.to_string().as_bytes()).status, 400);
    ask(&mut client, &with(&greedy(), &json!({"n": 2})));
}

#[test]
fn texts_wait_for_the_memory_of_others() {
    let block = 2 * 64 * 2 * 4 * 16 * 4;
    // Each has 2 blocks from the start and 4 in the end, so a third one always has room. The half is for the requests.
    let server = serve(|options| options.limits.memory = 11 * block + block / 2);
    let body = |number: usize| {
        let prompt = "x".repeat(number + 1);
        with(&greedy(), &json!({"prompt": prompt, "max_tokens": 4 * 64 - 10}))
    };
    let alone: Vec<Value> =
        (0..3).map(|number| ask(&mut server.client(), &body(number))["choices"].clone()).collect();
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request("/v1/completions", &[], body(number % 3).to_string().as_bytes()));
    }
    let (mut answered, mut refused) = (0, 0);
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.reply();
        match reply.status {
            200 => {
                answered += 1;
                assert_eq!(reply.json()["choices"], alone[number % 3]);
            }
            status => {
                refused += 1;
                assert_eq!((status, reply.header("retry-after")), (429, Some("1")));
            }
        }
    }
    assert!(answered >= 3 && answered + refused == 6, "{answered} {refused}");
    // A text that says nothing about its length leaves room for others: at most half of the memory, 5 whole blocks, is its own.
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0});
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(request("/v1/chat/completions", &[], chat.to_string().as_bytes()));
    }
    for client in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.status, &reply.json()["usage"]["total_tokens"]), (200, &json!(5 * 64)));
    }
}

#[test]
fn an_answer_is_the_same_alone_and_among_many() {
    let server = serve(|_| {});
    let body = |number: usize| {
        let prompt = &"The quick brown fox jumps over the lazy dog".repeat(4)[..=number * 5];
        with(&greedy(), &json!({"prompt": prompt, "max_tokens": 10 + number, "logprobs": 1}))
    };
    let alone: Vec<Value> =
        (0..32).map(|number| ask(&mut server.client(), &body(number))["choices"].clone()).collect();
    let mut clients: Vec<Client> = (0..32).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request("/v1/completions", &[], body(number).to_string().as_bytes()));
    }
    for (client, alone) in clients.iter_mut().zip(alone) {
        assert_eq!(client.reply().json()["choices"], alone);
    }
}
