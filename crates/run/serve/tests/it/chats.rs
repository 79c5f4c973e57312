//! Conversations over sockets: OpenAI's chats and responses, and Triton's `generate`.

use serde_json::{Value, json};

use crate::texts::{ask_at, events_at, greedy, serve, with};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 9})
}

fn response() -> Value {
    json!({"model": "m", "input": "Hi", "temperature": 0, "max_output_tokens": 9})
}

#[test]
fn a_chat_continues_what_the_template_writes() {
    let server = serve(|_| {});
    let mut client = server.client();
    let mut completion = |prompt: &str| {
        let body = with(&greedy(), &json!({"prompt": prompt, "max_tokens": 9}));
        ask_at(&mut client, "/v1/completions", &body)["choices"][0]["text"].clone()
    };
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]);
    let cases = [
        (chat(), "<user>Hi<assistant>"),
        (with(&chat(), &json!({"tools": [tool], "tool_choice": "auto"})), "1 tools <user>Hi<assistant>"),
        (with(&chat(), &json!({"tools": [tool], "tool_choice": "none"})), "<user>Hi<assistant>"),
        (
            with(&chat(), &json!({"messages": parts, "response_format": {"type": "text"}})),
            "<user>Hi<assistant>",
        ),
    ];
    for (body, prompt) in cases {
        let answer = ask_at(&mut server.client(), CHAT, &body);
        let choice = &answer["choices"][0];
        assert_eq!(
            choice["message"],
            json!({"role": "assistant", "content": completion(prompt), "refusal": null})
        );
        assert_eq!(
            (&answer["object"], &choice["finish_reason"]),
            (&json!("chat.completion"), &json!("length"))
        );
        assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
    }
}

#[test]
fn a_chat_without_a_limit_fills_the_context() {
    let server = serve(|options| options.limits.memory = 1 << 18);
    let body = with(&chat(), &json!({"max_tokens": null, "max_completion_tokens": null}));
    // The keys and values of 4 blocks of 64 tokens fit, of which others may have half.
    let answer = ask_at(&mut server.client(), CHAT, &body);
    assert_eq!(
        (&answer["usage"]["total_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(128), &json!("length"))
    );
    let body = with(&chat(), &json!({"max_tokens": 1, "max_completion_tokens": 5}));
    assert_eq!(ask_at(&mut server.client(), CHAT, &body)["usage"]["completion_tokens"], 5);
}

#[test]
fn a_stream_of_a_chat_has_deltas() {
    let server = serve(|_| {});
    let mut client = server.client();
    let body =
        with(&chat(), &json!({"n": 2, "temperature": 1, "seed": 5, "logprobs": true, "top_logprobs": 2}));
    let whole = ask_at(&mut client, CHAT, &body);
    let chunks = events_at(&mut client, CHAT, &with(&body, &json!({"stream": true})));
    for index in 0..2 {
        let choices: Vec<&Value> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(choices[0]["delta"], json!({"role": "assistant", "content": ""}));
        let text: String = choices.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(text, whole["choices"][index]["message"]["content"]);
        let tokens: Vec<&Value> =
            choices.iter().filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten().collect();
        let expected = &whole["choices"][index]["logprobs"]["content"];
        assert_eq!(json!(tokens), *expected);
        assert_eq!(expected[0]["top_logprobs"].as_array().map(Vec::len), Some(2));
        assert!(expected[0]["bytes"].as_array().is_some_and(|bytes| bytes.len() == 1), "{expected}");
        let (last, others) = choices.split_last().expect("chunks");
        assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("length")));
        assert!(others.iter().all(|choice| choice["finish_reason"].is_null()));
    }
}

fn schema(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
}

#[cfg(feature = "schemas")]
#[test]
fn an_answer_follows_a_schema() {
    let server = serve(|_| {});
    let mut client = server.client();
    let object = json!({
        "type": "object", "additionalProperties": false, "required": ["a", "b"],
        "properties": {"a": {"const": "x"}, "b": {"type": "integer", "minimum": 7, "maximum": 7}}
    });
    let body = with(&chat(), &json!({"max_tokens": 40, "response_format": schema(&object)}));
    let answer = ask_at(&mut client, CHAT, &body);
    assert_eq!(answer["choices"][0]["message"]["content"], "{\"a\": \"x\", \"b\": 7}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let cut = ask_at(&mut client, CHAT, &with(&body, &json!({"max_tokens": 3})));
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
}

#[test]
fn errors_of_chats_name_the_member() {
    let server = serve(|_| {});
    let mut client = server.client();
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    for (path, body, param) in [
        (CHAT, with(&chat(), &json!({"messages": null})), "messages"),
        (CHAT, with(&chat(), &json!({"messages": []})), "messages"),
        (CHAT, with(&chat(), &json!({"messages": ["Hi"]})), "messages"),
        (CHAT, with(&chat(), &json!({"messages": [{"content": "Hi"}]})), "messages"),
        (CHAT, with(&chat(), &json!({"messages": [{"role": "x", "content": ""}]})), "messages"),
        (CHAT, with(&chat(), &json!({"top_logprobs": 2})), "top_logprobs"),
        (CHAT, with(&chat(), &json!({"logprobs": 2})), "logprobs"),
        (CHAT, with(&chat(), &json!({"response_format": {"type": "xml"}})), "response_format"),
        (CHAT, with(&chat(), &json!({"response_format": schema(&json!({"type": "x"}))})), "response_format"),
        (CHAT, with(&chat(), &json!({"tool_choice": "required"})), "tool_choice"),
        (CHAT, with(&chat(), &json!({"store": true})), "store"),
        (CHAT, with(&chat(), &json!({"audio": {}})), "audio"),
        (CHAT, with(&chat(), &json!({"prompt": "Hi"})), "prompt"),
        (CHAT, with(&chat(), &json!({"max_completion_tokens": 9999})), "max_completion_tokens"),
        (RESPONSES, with(&response(), &json!({"store": true})), "store"),
        (RESPONSES, with(&response(), &json!({"background": true})), "background"),
        (RESPONSES, with(&response(), &json!({"previous_response_id": "resp_1"})), "previous_response_id"),
        (RESPONSES, with(&response(), &json!({"input": null})), "input"),
        (RESPONSES, with(&response(), &json!({"input": user(json!([{"type": "input_image"}]))})), "input"),
        (RESPONSES, with(&response(), &json!({"max_output_tokens": 9999})), "max_output_tokens"),
        (RESPONSES, with(&response(), &json!({"text": {"format": {"type": "json_schema"}}})), "text"),
    ] {
        let reply = client.post(path, &[], body.to_string().as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{body}: {}",
            reply.json()
        );
    }
    let body = with(&chat(), &json!({"messages": [{"role": "x", "content": ""}]}));
    let error = client.post(CHAT, &[], body.to_string().as_bytes()).json();
    assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains("no x")), "{error}");
}

#[test]
fn a_response_is_stateless() {
    let server = serve(|_| {});
    let mut client = server.client();
    let chat = ask_at(&mut client, CHAT, &chat());
    let text = chat["choices"][0]["message"]["content"].clone();
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]},
    ]);
    for members in [json!({}), json!({"store": false, "background": false, "previous_response_id": null})] {
        let response = ask_at(&mut client, RESPONSES, &with(&response(), &members));
        assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("incomplete")));
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(response["output"][0]["content"][0]["text"], text);
        assert_eq!(response["usage"]["output_tokens"], 9);
    }
    let longer =
        ask_at(&mut client, RESPONSES, &with(&response(), &json!({"input": items, "instructions": "Be"})));
    assert_eq!(longer["usage"]["input_tokens"], "<system>Be<user>Hi<assistant>Ho<assistant>".len());
}

#[test]
fn the_events_of_a_response_are_numbered() {
    let server = serve(|_| {});
    let mut client = server.client();
    let whole = ask_at(&mut client, RESPONSES, &response());
    let body = with(&response(), &json!({"stream": true}));
    let reply = client.post(RESPONSES, &[], body.to_string().as_bytes());
    let text = String::from_utf8(reply.body).expect("it is text");
    let mut kinds = Vec::new();
    let mut shown = String::new();
    for (number, event) in text.split_terminator("\n\n").enumerate() {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(
            (name, &data["sequence_number"]),
            (&*format!("event: {}", data["type"].as_str().expect("a text")), &json!(number))
        );
        if name == "event: response.output_text.delta" {
            shown.push_str(data["delta"].as_str().expect("a text"));
        }
        if name == "event: response.incomplete" {
            assert_eq!(data["response"]["output"][0]["content"], whole["output"][0]["content"]);
        }
        kinds.push(name.to_owned());
    }
    kinds.dedup();
    assert_eq!(shown, whole["output"][0]["content"][0]["text"]);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ];
    assert_eq!(kinds, expected.map(|kind| format!("event: response.{kind}")));
}

#[test]
fn triton_generates_too() {
    let server = serve(|_| {});
    let mut client = server.client();
    let expected = ask_at(&mut client, "/v1/completions", &greedy())["choices"][0]["text"].clone();
    let members = json!({"temperature": 0, "max_tokens": 12});
    for body in [
        with(&json!({"text_input": "Once upon"}), &members),
        json!({"text_input": "Once upon", "parameters": members}),
    ] {
        let answer = ask_at(&mut client, "/v2/models/m/generate", &body);
        assert_eq!(answer, json!({"model_name": "m", "model_version": "1", "text_output": expected}));
        let reply = client.post("/v2/models/m/versions/1/generate_stream", &[], body.to_string().as_bytes());
        let text = String::from_utf8(reply.body).expect("it is text");
        let pieces = text.split_terminator("\n\n").map(|event| {
            let data: Value =
                serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON");
            data["text_output"].as_str().expect("a text").to_owned()
        });
        assert_eq!(pieces.collect::<String>(), expected.as_str().expect("a text"));
    }
    let wrong =
        client.post("/v2/models/m/generate", &[], br#"{"text_input": "a", "parameters": {"top_p": "x"}}"#);
    assert!(wrong.status == 400 && wrong.error().contains("`top_p`"), "{wrong:?}");
    assert_eq!(client.post("/v2/models/x/generate", &[], b"{}").status, 404);
}
