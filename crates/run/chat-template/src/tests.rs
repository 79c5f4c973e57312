//! Templates that are rendered, and those that are refused. `tests/conformance/test_chat_templates.py` compares texts with those of `transformers`.

use serde_json::json;

use crate::{ChatTemplate, Conversation, Error, Result};

/// Returns the templates of a folder with these documents.
fn folder(documents: &[(&str, &str)]) -> Result<Option<ChatTemplate>> {
    let mut read = |name: &str| {
        let found = documents.iter().find(|(known, _)| *known == name);
        Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
    };
    ChatTemplate::from_documents(&mut read)
}

fn conversation(json: serde_json::Value) -> Conversation {
    serde_json::from_value(json).expect("a conversation")
}

/// Renders a template with one message.
fn rendered(template: &str) -> Result<String> {
    let template = folder(&[("chat_template.jinja", template)])?.expect("a template");
    template.render(&conversation(json!([{ "role": "user", "content": "Hi" }])))
}

#[test]
fn the_template_of_its_own_file_counts_and_tokens_have_names() {
    let config = json!({
        "bos_token": { "content": "<s>" }, "eos_token": "</s>", "pad_token": null,
        "extra_special_tokens": { "image_token": "<image>" }, "chat_template": "config",
    });
    let text = "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ pad_token is defined }}";
    let both = [("chat_template.jinja", text), ("tokenizer_config.json", &config.to_string())];
    let template = folder(&both).expect("documents").expect("a template");
    let one = conversation(json!([{ "role": "user" }]));
    assert_eq!(template.render(&one).expect("a text"), "<s></s><image>False");
    let template = folder(&both[1..]).expect("documents").expect("a template");
    assert_eq!((template.render(&one).as_deref(), template.file()), (Ok("config"), "tokenizer_config.json"));
    assert!(folder(&[("tokenizer_config.json", "{}")]).expect("documents").is_none());
}

#[test]
fn a_class_of_tokenizers_has_tokens_of_its_own() {
    let text = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token is defined }}";
    let one = conversation(json!([{ "role": "user" }]));
    for (config, expected) in [
        (json!({ "tokenizer_class": "LlamaTokenizerFast", "eos_token": "<e>" }), "<s>|<e>|<unk>|False"),
        (json!({ "tokenizer_class": "Qwen2Tokenizer", "unk_token": null }), "|<|endoftext|>||True"),
        (json!({ "tokenizer_class": "OtherTokenizer" }), "|||False"),
    ] {
        let documents = [("chat_template.jinja", text), ("tokenizer_config.json", &config.to_string())];
        let template = folder(&documents).expect("documents").expect("a template");
        assert_eq!(template.render(&one).as_deref(), Ok(expected), "{config}");
    }
}

#[test]
fn messages_with_calls_have_the_form_that_the_template_takes() {
    let call = json!({ "function": { "name": "f", "arguments": "{\"a\": 1}" } });
    let one = conversation(json!([{ "role": "assistant", "content": null, "tool_calls": [call] }]));
    let (name, arguments) =
        ("message.tool_calls[0].function.name", "message.tool_calls[0].function.arguments");
    for (text, expected) in [
        (format!("{{{{ message.content is defined }}}} {{{{ {arguments}.a }}}}"), Ok("fFalse 1")),
        (format!("{{{{ '<' + {arguments} }}}}"), Ok("f<{\"a\": 1}")),
        // Qwen 3 adds the content.
        (format!("{{{{ '<' + message.content }}}}{{{{ {arguments}.a + 0 }}}}"), Ok("f<1")),
        (format!("{{{{ '<' + message.content + {arguments} }}}}"), Ok("f<{\"a\": 1}")),
        ("{{ '<' + message.none }}".to_owned(), Err(())),
    ] {
        let text = format!("{{% for message in messages %}}{{{{ {name} }}}}{text}{{% endfor %}}");
        let template = folder(&[("chat_template.jinja", &text)]).expect("documents").expect("a template");
        assert_eq!(template.render(&one).as_deref().map_err(|_| ()), expected, "{text}");
    }
    // Falcon 3 does not write calls.
    let text = "{% for message in messages %}{{ '<' + message.content }}{% endfor %}";
    let template = folder(&[("chat_template.jinja", text)]).expect("documents").expect("a template");
    template.render(&one).expect_err("a text without the call");
}

#[test]
fn tools_choose_the_named_template() {
    let list =
        json!([{ "name": "default", "template": "plain" }, { "name": "tool_use", "template": "tools" }]);
    let render = |list: &serde_json::Value, conversation: &Conversation| {
        let config = json!({ "chat_template": list }).to_string();
        folder(&[("tokenizer_config.json", &config)])
            .expect("documents")
            .expect("templates")
            .render(conversation)
    };
    let plain = conversation(json!([{ "role": "user", "content": "" }]));
    let tools = conversation(json!({ "messages": [{ "role": "user" }], "tools": [] }));
    assert_eq!(
        [render(&list, &plain), render(&list, &tools)],
        [Ok("plain".to_owned()), Ok("tools".to_owned())]
    );
    let list = json!([{ "name": "rag", "template": "" }, { "name": "tool_use", "template": "tools" }]);
    assert_eq!(
        render(&list, &plain).expect_err("no default").to_string(),
        "`tokenizer_config.json` has several chat templates and none is the default: rag, tool_use"
    );
}

#[test]
fn arguments_become_objects_and_parts_a_text() {
    let call = json!({ "function": { "name": "f", "arguments": "{\"a\": 1.0}" } });
    let messages = conversation(json!([
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
    ]));
    let render =
        |text| folder(&[("chat_template.jinja", text)]).expect("one").expect("one").render(&messages);
    let text =
        "{{ messages[0].tool_calls[0].function.arguments|tojson }}{{ messages[0].content is defined }}";
    assert_eq!(render(text).as_deref(), Ok("{\"a\": 1.0}False"));
    assert_eq!(render("{{ messages[-1].content }}").as_deref(), Ok("a\nb"));
    let parts = "{% for part in messages[-1].content %}<{{ part.text }}>{% endfor %}";
    assert_eq!(render(parts).as_deref(), Ok("<a><b>"));
}

#[test]
fn folders_of_meta_have_a_format() {
    let messages = conversation(json!([
        { "role": "system", "content": "Be brief" }, { "role": "user", "content": " Hi " },
        { "role": "assistant", "content": "Yes?" }, { "role": "user", "content": "Go on" },
    ]));
    let render = |tokenizer| {
        let template = folder(&[("params.json", "{}"), ("tokenizer.model", tokenizer)]);
        template.expect("documents").expect("a format").render(&messages).expect("a text")
    };
    assert_eq!(
        render("\n\u{e}"),
        "<s>[INST] <<SYS>>\nBe brief\n<</SYS>>\n\n Hi [/INST] Yes? </s><s>[INST] Go on [/INST]"
    );
    assert_eq!(
        render("IQ== 0"),
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nGo on<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
}

#[test]
fn errors_have_their_line() {
    let text = |template| rendered(template).expect_err("an error").to_string();
    assert_eq!(
        text("\n\n{{ raise_exception('not so') }}"),
        "the chat template refuses the conversation: not so (line 3 of `chat_template.jinja`)"
    );
    assert_eq!(
        text("a\n{{ nothing.x }}"),
        "the chat template in `chat_template.jinja` failed at line 2: undefined value"
    );
    assert_eq!(
        text("a\nb{% if %}"),
        "line 2 of the chat template in `chat_template.jinja` is not understood: unexpected end of block"
    );
    let nothing =
        folder(&[("chat_template.jinja", "")]).expect("one").expect("one").render(&conversation(json!([])));
    assert_eq!(nothing, Err(Error::NoMessages));
}

#[test]
fn work_and_memory_are_bounded() {
    for template in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
        "{{ 'a' * 10**12 }}",
        "{% for a in range(100000) %}{{ 'a'.ljust(10**6)|length }}{% endfor %}",
    ] {
        assert!(matches!(rendered(template), Err(Error::Work { .. })), "{template}");
    }
    for template in [
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(x=[1]) %}{% for a in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}",
        "{{ 'a'.center(10**12) }}",
        "{{ range(10**18)|list }}",
        "{{ messages.append(1) }}",
    ] {
        assert!(matches!(rendered(template), Err(Error::Failed { .. })), "{template}");
    }
    let doubled = format!("{}{{{{ x == [x] }}}}{{{{ x }}}}", "{% set x = [x, x] %}".repeat(80));
    assert!(matches!(rendered(&doubled), Err(Error::Work { .. } | Error::Failed { .. })));
    let nested = "{% if 1 %}".repeat(10_000);
    assert!(matches!(rendered(&nested), Err(Error::Syntax { .. })));
}
