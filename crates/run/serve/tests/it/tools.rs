//! Calls of tools over sockets: a grammar makes the model of bytes write them.

use serde_json::{Value, json};

#[cfg(feature = "schemas")]
use crate::texts::{ask_at, events_at, serve_with};
use crate::texts::{serve, with};

const CHAT: &str = "/v1/chat/completions";
#[cfg(feature = "schemas")]
const RESPONSES: &str = "/v1/responses";

fn parameters() -> Value {
    let city = json!({"enum": ["Oslo", "Rome"]});
    json!({"type": "object", "properties": {"city": city, "days": {"$ref": "#/$defs/days"}}, "required": ["city", "days"],
           "additionalProperties": false, "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 3}}})
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": parameters()}})
}

fn chat(members: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "m", "messages": messages, "temperature": 0, "max_tokens": 300,
                      "tools": [tool("weather"), tool("news")], "tool_choice": "required", "parallel_tool_calls": false});
    with(&body, members)
}

/// Checks a call, and returns its name.
#[cfg(feature = "schemas")]
fn checked(function: &Value) -> String {
    let arguments: Value =
        serde_json::from_str(function["arguments"].as_str().expect("a text")).expect("JSON");
    assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().expect("a text")), "{arguments}");
    assert!((1..=3).contains(&arguments["days"].as_i64().expect("a number")), "{arguments}");
    function["name"].as_str().expect("a text").to_owned()
}

#[cfg(feature = "schemas")]
#[test]
fn a_required_call_is_parsed() {
    let server = serve(|_| {});
    let mut client = server.client();
    let named = json!({"type": "function", "function": {"name": "news"}});
    for (choice, names) in [(json!("required"), &["weather", "news"][..]), (named, &["news"])] {
        let body = chat(&json!({"tool_choice": choice, "logprobs": true}));
        let answer = ask_at(&mut client, CHAT, &body);
        let (message, choice) = (&answer["choices"][0]["message"], &answer["choices"][0]);
        assert_eq!(
            (&choice["finish_reason"], &message["content"]),
            (&json!("tool_calls"), &Value::Null),
            "{answer}"
        );
        let calls = message["tool_calls"].as_array().expect("calls");
        assert!(calls.len() == 1 && calls[0]["type"] == "function", "{answer}");
        assert!(names.contains(&&*checked(&calls[0]["function"])));
        let id = calls[0]["id"].as_str().expect("an id");
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        let scores = choice["logprobs"]["content"].as_array().expect("scores");
        assert_eq!(answer["usage"]["completion_tokens"], scores.len());

        let chunks = events_at(&mut client, CHAT, &with(&body, &json!({"stream": true})));
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        let calls: Vec<&Value> =
            deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
        assert!(calls.len() == 1 && calls[0]["index"] == 0, "{calls:?}");
        assert_eq!(calls[0]["function"], message["tool_calls"][0]["function"]);
        let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(
            (&*text, &chunks.last().expect("chunks")["choices"][0]["finish_reason"]),
            ("", &json!("tool_calls"))
        );
        let streamed =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array()).flatten();
        assert_eq!(streamed.count(), scores.len());
    }
    // The answer goes back to the model.
    let answer = ask_at(&mut client, CHAT, &chat(&json!({})))["choices"][0]["message"].clone();
    let id = answer["tool_calls"][0]["id"].clone();
    let result = json!({"role": "tool", "tool_call_id": id, "content": "rain"});
    let messages = json!([{"role": "user", "content": "Hi"}, answer, result]);
    ask_at(&mut client, CHAT, &chat(&json!({"messages": messages, "tool_choice": "auto"})));
}

#[cfg(feature = "schemas")]
#[test]
fn a_cut_call_stays_text_and_a_schema_is_allowed_beside_calls() {
    let server = serve(|_| {});
    let mut client = server.client();
    let cut = ask_at(&mut client, CHAT, &chat(&json!({"max_tokens": 20})));
    let (choice, message) = (&cut["choices"][0], &cut["choices"][0]["message"]);
    assert_eq!((&choice["finish_reason"], message.get("tool_calls")), (&json!("length"), None));
    assert!(message["content"].as_str().is_some_and(|text| text.starts_with("<tool_call>\n{")), "{cut}");
    let schema = json!({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}});
    // The bias makes the answer begin with `{`, or with `<`.
    for (byte, has_call) in [(b'{', false), (b'<', true)] {
        let members =
            json!({"tool_choice": "auto", "response_format": format, "logit_bias": {byte.to_string(): 100}});
        let answer = ask_at(&mut client, CHAT, &chat(&members));
        let message = &answer["choices"][0]["message"];
        assert_eq!(message.get("tool_calls").is_some(), has_call, "{answer}");
        assert_eq!(message["content"], if has_call { Value::Null } else { json!("{\"a\": 1}") });
    }
    for (members, count) in [(json!({}), 1), (json!({"n": 3, "temperature": 1, "seed": 1}), 3)] {
        let answer = ask_at(&mut client, CHAT, &chat(&members));
        for choice in answer["choices"].as_array().expect("choices") {
            checked(&choice["message"]["tool_calls"][0]["function"]);
        }
        assert_eq!(answer["choices"].as_array().map(Vec::len), Some(count));
    }
}

/// Writes calls as Qwen 3 Coder does.
#[cfg(feature = "schemas")]
const ELEMENTS: &str = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% for call in message.tool_calls or [] %}\
                        {{ '\n<tool_call>\n<function=' ~ call.function.name ~ '>\n' }}{% for key, value in call.function.arguments | items %}\
                        {{ '<parameter=' ~ key ~ '>\n' ~ value ~ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}\
                        {% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

#[cfg(feature = "schemas")]
#[test]
fn arguments_in_elements_are_required_in_their_order() {
    let server = serve_with(ELEMENTS, |_| {});
    let mut client = server.client();
    let answer = ask_at(&mut client, CHAT, &chat(&json!({})));
    checked(&answer["choices"][0]["message"]["tool_calls"][0]["function"]);
    // A text of any form, which this model never ends.
    let parameters = json!({"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let answer = ask_at(&mut client, CHAT, &chat(&json!({"tools": tools, "max_tokens": 60})));
    let text = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    assert!(text.starts_with("<tool_call>\n<function=f>\n<parameter=q>\n") && text.len() > 50, "{text}");
}

#[cfg(feature = "schemas")]
#[test]
fn a_response_has_calls_as_items() {
    let server = serve(|_| {});
    let mut client = server.client();
    let flat = json!({"type": "function", "name": "weather", "parameters": parameters(), "strict": true});
    let choice = json!({"type": "function", "name": "weather"});
    let body = json!({"model": "m", "input": "Hi", "temperature": 0, "max_output_tokens": 300, "tools": [flat], "tool_choice": choice});
    let response = ask_at(&mut client, RESPONSES, &body);
    let item = response["output"][0].clone();
    assert_eq!(
        (&item["type"], &response["status"], response["output"].as_array().map(Vec::len)),
        (&json!("function_call"), &json!("completed"), Some(1))
    );
    assert_eq!((checked(&item), &response["tool_choice"]), ("weather".to_owned(), &choice));

    let reply = client.post(RESPONSES, &[], with(&body, &json!({"stream": true})).to_string().as_bytes());
    let text = String::from_utf8(reply.body).expect("it is text");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names, expected);

    let returned = json!({"type": "function_call_output", "call_id": item["call_id"], "output": "rain"});
    let input = json!([{"role": "user", "content": "Hi"}, item, returned]);
    let members = json!({"input": input, "tool_choice": "auto", "max_output_tokens": 3});
    assert_eq!(ask_at(&mut client, RESPONSES, &with(&body, &members))["status"], "incomplete");
}

#[test]
fn errors_of_tools_name_the_member() {
    let server = serve(|_| {});
    let mut client = server.client();
    for (members, param) in [
        (json!({"tools": null}), "tool_choice"),
        (json!({"tools": []}), "tool_choice"),
        (json!({"tool_choice": "always"}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}), "tool_choice"),
        (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice"),
        (json!({"tools": [{"type": "web_search"}]}), "tools"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools"),
        (json!({"tools": ["x"]}), "tools"),
        (json!({"tools": vec![tool("f"); 129]}), "tools"),
    ] {
        let body = chat(&members);
        let reply = client.post(CHAT, &[], body.to_string().as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{members}: {}",
            reply.json()
        );
    }
}
