//! Answers in channels over sockets: a grammar makes the model of bytes write them as gpt-oss does.
#![cfg(feature = "schemas")]

use serde_json::{Value, json};

use crate::texts::{ask_at, events_at, serve_with, with};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// Writes conversations as gpt-oss reads them.
const TEMPLATE: &str = "{% for message in messages %}<|start|>{{ message.role }}{% if message.role == 'assistant' %}\
                        {% if message.thinking %}<|channel|>analysis<|message|>{{ message.thinking }}<|end|><|start|>assistant{% endif %}\
                        {% if message.tool_calls %} to=functions.{{ message.tool_calls[0].function.name }}<|channel|>commentary json<|message|>\
                        {{ message.tool_calls[0].function.arguments | tojson }}<|call|>{% else %}<|channel|>final{% endif %}{% endif %}\
                        {% if not message.tool_calls %}<|message|>{{ message.content }}<|end|>{% endif %}{% endfor %}\
                        {% if add_generation_prompt %}<|start|>assistant{% endif %}";

/// A bias against the byte with which the name of a channel begins.
fn without(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| (byte.to_string(), json!(-100))).collect::<serde_json::Map<_, _>>().into()
}

fn chat(members: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    with(&json!({"model": "m", "messages": messages, "temperature": 0, "max_tokens": 200}), members)
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"], "additionalProperties": false});
    json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
}

#[test]
fn a_call_is_required_and_goes_back() {
    let server = serve_with(TEMPLATE, |_| {});
    let mut client = server.client();
    let body = chat(&json!({"tools": tools(), "tool_choice": "required", "logit_bias": without(b"a")}));
    let answer = ask_at(&mut client, CHAT, &body);
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    assert_eq!(
        (&choice["finish_reason"], &message["content"]),
        (&json!("tool_calls"), &Value::Null),
        "{answer}"
    );
    let function = json!({"name": "f", "arguments": "{\"n\": 7}"});
    assert_eq!(message["tool_calls"][0]["function"], function);
    let chunks = events_at(&mut client, CHAT, &with(&body, &json!({"stream": true})));
    let calls: Vec<&Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
        .flatten()
        .collect();
    assert!(calls.len() == 1 && calls[0]["function"] == function, "{calls:?}");
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "7"});
    let messages = json!([{"role": "user", "content": "Hi"}, message, result]);
    ask_at(&mut client, CHAT, &chat(&json!({"messages": messages, "tools": tools(), "max_tokens": 3})));
}

#[test]
fn an_answer_of_a_schema_has_no_marks() {
    let server = serve_with(TEMPLATE, |_| {});
    let schema = json!({"type": "object", "properties": {"n": {"const": 1}}, "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}});
    let body = chat(&json!({"response_format": format, "logit_bias": without(b"a")}));
    let message = ask_at(&mut server.client(), CHAT, &body)["choices"][0]["message"].clone();
    assert_eq!(message, json!({"role": "assistant", "content": "{\"n\": 1}", "refusal": null}));
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let server = serve_with(TEMPLATE, |_| {});
    let mut client = server.client();
    let format = json!({"type": "json_object"});
    let members = json!({"response_format": format, "max_tokens": 60, "logit_bias": without(b"f")});
    let body = chat(&members);
    let choice = ask_at(&mut client, CHAT, &body)["choices"][0].clone();
    let reasoning = choice["message"]["reasoning_content"].as_str().expect("reasoning");
    assert!(!reasoning.is_empty() && !reasoning.contains("<|"), "{reasoning}");
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")));
    let chunks = events_at(&mut client, CHAT, &with(&body, &json!({"stream": true})));
    let streamed: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].as_str())
        .collect();
    assert_eq!(streamed, reasoning);

    let body = json!({"model": "m", "input": "Hi", "temperature": 0, "max_output_tokens": 60, "text": {"format": format},
                      "logit_bias": without(b"f")});
    let response = ask_at(&mut client, RESPONSES, &body);
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["content"][0]["text"]), (&json!("reasoning"), &json!(reasoning)));
    let reply = client.post(RESPONSES, &[], with(&body, &json!({"stream": true})).to_string().as_bytes());
    let text = String::from_utf8(reply.body).expect("it is text");
    assert!(text.contains("event: response.reasoning_text.delta\n"), "{text}");
    // It goes back with its message, and is left out without one.
    let said = json!({"type": "message", "role": "assistant", "content": "yes"});
    for input in [
        json!([{"role": "user", "content": "Hi"}, item, said, {"role": "user", "content": "Hi"}]),
        json!([{"role": "user", "content": "Hi"}, item, {"role": "user", "content": "Hi"}]),
    ] {
        let body = json!({"model": "m", "input": input, "temperature": 0, "max_output_tokens": 3});
        assert_eq!(ask_at(&mut client, RESPONSES, &body)["status"], "incomplete");
    }
}
