//! Calls in answers, whole and cut anywhere.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::{CallBody, CallId, Tool, ToolCall, ToolParser, ToolSyntax};
use crate::{AnswerPiece, ChatTemplate, Error};

const MESSAGES: &str = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{% if m.content %}{{ m.content }}{% endif %}\
                        {% for c in m.tool_calls or [] %}CALL{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

const HERMES: &str = r#"{{- '<tool_call>\n{"name": "' ~ c.function.name ~ '", "arguments": ' ~ c.function.arguments | tojson ~ '}\n</tool_call>\n' }}"#;
const LLAMA: &str = r#"{% if m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}{{ '{"name": "' ~ c.function.name ~ '", "parameters": ' ~ c.function.arguments | tojson ~ '}' }}"#;
const LIST: &str = r#"{{ ('[TOOL_CALLS] [' if loop.first else ', ') ~ '{"name": "' ~ c.function.name ~ '", "arguments": ' ~ c.function.arguments | tojson ~ ', "id": "' ~ c.id ~ '"}' ~ (']' if loop.last else '') }}"#;
const NAMED: &str = r"{{ '[TOOL_CALLS]' ~ c.function.name ~ '[ARGS]' ~ c.function.arguments | tojson }}";
const NUMBERED: &str =
    r"{{ '[TOOL_CALLS]' ~ c.function.name ~ '[CALL_ID]' ~ c.id ~ '[ARGS]' ~ c.function.arguments | tojson }}";
const FUNCTION: &str =
    r"{{ '<function=' ~ c.function.name ~ '>' ~ c.function.arguments | tojson ~ '</function>' }}";
const ELEMENTS: &str = r"{{ '\n<tool_call>\n<function=' ~ c.function.name ~ '>\n' }}{% for k, v in c.function.arguments | items %}{{ '<parameter=' ~ k ~ '>\n' ~ v ~ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}";

const KEYS: &str = r"{{ '\n<tool_call>' ~ c.function.name ~ '\n' }}{% for k, v in c.function.arguments | items %}{{ '<arg_key>' ~ k ~ '</arg_key>\n<arg_value>' ~ (v if v is string else v | tojson) ~ '</arg_value>\n' }}{% endfor %}{{ '</tool_call>' }}";

/// Calls of DeepSeek V3, with the arguments as a text.
const FENCED: &str = r"{{ ('<calls>' if loop.first else '\n') ~ '<call>function<sep>' ~ c.function.name ~ '\n```json\n' + c.function.arguments + '\n```</call>' ~ ('</calls>' if loop.last else '') }}";
/// Calls of Kimi K2.
const INDEXED: &str = r"{{ ('<|calls|>' if loop.first else '') ~ '<|call|>functions.' ~ c.function.name ~ ':' ~ loop.index0 ~ '<|args|>' ~ c.function.arguments | tojson ~ '<|end_call|>' ~ ('<|end_calls|>' if loop.last else '') }}";
/// Calls of Kimi K2 that have the ids of the conversation.
const OWN_IDS: &str = r"{{ ('<|calls|>' if loop.first else '') ~ '<|call|>' ~ c.id ~ '<|args|>' ~ c.function.arguments | tojson ~ '<|end_call|>' ~ ('<|end_calls|>' if loop.last else '') }}";
/// Calls of Apertus.
const KEYED: &str = r#"{{ '<|tools_prefix|>[' if loop.first else ', ' }}{{ '{"' ~ c.function.name ~ '": ' ~ c.function.arguments | tojson ~ '}' }}{{ ']<|tools_suffix|>' if loop.last }}"#;
/// Calls of Gemma 4.
const MAPPING: &str = r#"{{ '<|tool_call>call:' ~ c.function.name ~ '{' }}{% for k, v in c.function.arguments | items %}{{ ',' if not loop.first }}{{ k }}:{{ "<|'|>" ~ v ~ "<|'|>" if v is string else v }}{% endfor %}{{ '}<tool_call|>' }}"#;
/// Calls of DeepSeek V3.2.
const ATTRIBUTES: &str = r#"{{ ('\n\n<｜X｜calls>\n' if loop.first else '') ~ '<｜X｜invoke name="' ~ c.function.name ~ '">\n' }}{% for k, v in c.function.arguments | items %}{{ '<｜X｜parameter name="' ~ k ~ '" string="' ~ ('true' if v is string else 'false') ~ '">' ~ (v if v is string else v | tojson) ~ '</｜X｜parameter>\n' }}{% endfor %}{{ '</｜X｜invoke>\n' ~ ('</｜X｜calls>' if loop.last else '') }}"#;

/// Calls of LFM2.
const PYTHON: &str = r#"{{ '<|call_start|>[' if loop.first else ', ' }}{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ ', ' if not loop.first }}{{ k }}={{ "'" ~ v ~ "'" if v is string else v }}{% endfor %}){{ ']<|call_end|>' if loop.last }}"#;
/// Calls of Solar.
const ID_FIRST: &str = r"{{ ('<|calls|>' if loop.first else '') ~ '<|begin|>' ~ c.id ~ '<|name|>' ~ c.function.name ~ '<|args|>' ~ c.function.arguments | tojson ~ '<|done|>' ~ ('<|all|>' if loop.last else '') }}";

fn syntax(call: &str) -> Option<ToolSyntax> {
    let text = MESSAGES.replace("CALL", call);
    let mut read =
        |name: &str| Ok::<_, Error>((name == "chat_template.jinja").then(|| text.clone().into_bytes()));
    let template = ChatTemplate::from_documents(&mut read).expect("it compiles").expect("a template");
    template.tool_syntax().cloned()
}

fn tools() -> Vec<Tool> {
    let properties = json!({"a": {"type": "string"}, "n": {"type": "integer"}, "any": {}});
    let tool = |name: &str| Tool { name: name.to_owned(), parameters: json!({"properties": properties}) };
    vec![tool("f"), tool("g")]
}

/// Parses an answer that arrives in these pieces.
fn parsed(syntax: &ToolSyntax, pieces: &[&str]) -> Vec<AnswerPiece> {
    let mut parser = ToolParser::new(syntax.clone(), tools());
    let mut found: Vec<AnswerPiece> = Vec::new();
    let rest = pieces.iter().flat_map(|piece| parser.push(piece)).collect::<Vec<_>>();
    for piece in rest.into_iter().chain(parser.finish()) {
        match (found.last_mut(), piece) {
            (Some(AnswerPiece::Text(before)), AnswerPiece::Text(text)) => before.push_str(&text),
            (_, piece) => found.push(piece),
        }
    }
    found
}

/// Parses an answer whole, in characters, and cut once at each of them.
fn pieces(call: &str, answer: &str) -> Vec<AnswerPiece> {
    let syntax = syntax(call).expect("a syntax");
    let whole = parsed(&syntax, &[answer]);
    for (at, _) in answer.char_indices() {
        let (one, other) = answer.split_at(at);
        assert_eq!(parsed(&syntax, &[one, other]), whole, "{one}|{other}");
    }
    let characters: Vec<&str> = answer.split("").collect();
    assert_eq!(parsed(&syntax, &characters), whole, "{answer}");
    whole
}

fn text(text: &str) -> AnswerPiece {
    AnswerPiece::Text(text.to_owned())
}

fn call(name: &str, arguments: &str) -> AnswerPiece {
    AnswerPiece::Call(ToolCall { id: None, name: name.to_owned(), arguments: arguments.to_owned() })
}

fn call_with_id(id: &str, name: &str, arguments: &str) -> AnswerPiece {
    let (id, name) = (Some(id.to_owned()), name.to_owned());
    AnswerPiece::Call(ToolCall { id, name, arguments: arguments.to_owned() })
}

#[test]
fn templates_show_their_syntax() {
    let found = syntax(HERMES).expect("one");
    assert_eq!((&*found.lead, &*found.tail), ("<tool_call>\n", "\n</tool_call>"));
    let found = syntax(LLAMA).expect("one");
    let body = CallBody::Object {
        name_key: "name".to_owned(),
        arguments_key: "parameters".to_owned(),
        is_list: false,
    };
    assert_eq!((&*found.lead, found.body, &*found.tail), ("", body, ""));
    let found = syntax(LIST).expect("one");
    assert_eq!(found.lead, "[TOOL_CALLS] ");
    assert!(matches!(found.body, CallBody::Object { is_list: true, .. }), "{found:?}");
    let found = syntax(NUMBERED).expect("one");
    let id = Some(CallId { before: "[CALL_ID]".to_owned(), prefix: None, is_first: false });
    let body = CallBody::Named { id, before_arguments: "[ARGS]".to_owned() };
    assert_eq!((&*found.lead, found.body), ("[TOOL_CALLS]", body));
    let found = syntax(FUNCTION).expect("one");
    assert_eq!((&*found.lead, &*found.tail), ("<function=", "</function>"));
    let found = syntax(ELEMENTS).expect("one");
    assert_eq!((&*found.lead, &*found.tail), ("<tool_call>\n<function=", "\n</function>\n</tool_call>"));
    let found = syntax(KEYS).expect("one");
    assert_eq!((&*found.lead, &*found.tail), ("<tool_call>", "\n</tool_call>"));
    let section = |call: &str| {
        let ToolSyntax { section_lead, lead, tail, section_tail, .. } = syntax(call).expect("one");
        [section_lead, lead, tail, section_tail]
    };
    assert_eq!(section(FENCED), ["<calls>", "<call>function<sep>", "\n```</call>", "</calls>"]);
    assert_eq!(section(INDEXED), ["<|calls|>", "<|call|>functions.", "<|end_call|>", "<|end_calls|>"]);
    assert_eq!(
        section(ATTRIBUTES),
        ["<｜X｜calls>\n", "<｜X｜invoke name=\"", "\n</｜X｜invoke>", "\n</｜X｜calls>"]
    );
    assert_eq!(section(PYTHON), ["", "<|call_start|>", "<|call_end|>", ""]);
    assert_eq!(section(ID_FIRST), ["<|calls|>", "<|begin|>", "<|done|>", "<|all|>"]);
    let CallBody::Elements(marks) = syntax(ATTRIBUTES).expect("one").body else { panic!("no elements") };
    let attributes = marks.attributes.expect("attributes");
    assert_eq!([attributes.of_text, attributes.of_number, attributes.end], ["true", "false", "\">"]);
    for unknown in
        ["", "{{ c.function.name }}", "{{ c }}", "{{ c.function.name }}({{ c.function.arguments }})"]
    {
        assert_eq!(syntax(unknown), None, "{unknown}");
    }
}

#[test]
fn calls_between_marks() {
    let one = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x </tool_call> \\\" ä\", \"n\": 1e3}}\n</tool_call>";
    let arguments = "{\"a\": \"x </tool_call> \\\" ä\", \"n\": 1e3}";
    assert_eq!(pieces(HERMES, one), [call("f", arguments)]);
    let two = format!(
        "I look.\n\n{one}\n<tool_call>{{\"arguments\": \"{{\\\"n\\\": 2}}\", \"name\": \"h\"}}</tool_call>\n"
    );
    assert_eq!(pieces(HERMES, &two), [text("I look."), call("f", arguments), call("h", "{\"n\": 2}")]);
    let after = format!("{one} Done. ");
    assert_eq!(pieces(HERMES, &after), [call("f", arguments), text(" Done.")]);
    let open = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";
    assert_eq!(pieces(HERMES, open), [call("f", "{}")]);
    let both = "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": null}]</tool_call>";
    assert_eq!(pieces(HERMES, both), [call("f", "{}"), call("g", "{}")]);
}

#[test]
fn what_is_not_quite_a_call_stays_text() {
    for answer in [
        "",
        "Hi \n",
        " \n",
        "a < b <tool",
        "x <tool_call> is a mark",
        "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>\n",
        "<tool_call>{\"name\": \"f\"}</tool_call>",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>",
        "<tool_call>{\"name\": \"f\", \"arg",
    ] {
        let expected: Vec<AnswerPiece> =
            Some(text(answer)).filter(|_| !answer.is_empty()).into_iter().collect();
        assert_eq!(pieces(HERMES, answer), expected);
    }
    let mixed = "<tool_call>{f}</tool_call> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    assert_eq!(pieces(HERMES, mixed), [text("<tool_call>{f}</tool_call>"), call("f", "{}")]);
}

#[test]
fn an_answer_without_marks_is_a_call_or_a_text() {
    let f = "{\"name\": \"f\", \"parameters\": {\"a\": \"1\"}}";
    assert_eq!(pieces(LLAMA, f), [call("f", "{\"a\": \"1\"}")]);
    assert_eq!(
        pieces(LLAMA, &format!("\n<|python_tag|> {f}; {f}")),
        [call("f", "{\"a\": \"1\"}"), call("f", "{\"a\": \"1\"}")]
    );
    assert_eq!(pieces(LLAMA, "{\"name\": \"f\", \"arguments\": {}}"), [call("f", "{}")]);
    assert_eq!(pieces(LLAMA, &format!("{f}\n\nSo.")), [call("f", "{\"a\": \"1\"}"), text("\n\nSo.")]);
    for answer in [
        "Hi",
        "{\"name\": \"unknown\", \"parameters\": {}}",
        "{\"a\": 1}",
        "{\"name\": \"f\"}",
        "{x",
        "[1] says",
        " {",
        "<|python_tag|>f.call(a=1)",
        "<|python",
    ] {
        assert_eq!(pieces(LLAMA, answer), [text(answer)]);
    }
    assert_eq!(pieces(LLAMA, &format!("So: {f}")), [text(&format!("So: {f}"))]);
}

#[test]
fn calls_as_mistral_writes_them() {
    let list = "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": [1, {}]}, \"id\": \"a\"}, {\"name\": \"g\", \"arguments\": {}}]";
    assert_eq!(pieces(LIST, list), [call("f", "{\"n\": [1, {}]}"), call("g", "{}")]);
    assert_eq!(pieces(LIST, "[TOOL_CALLS] {\"name\": \"f\", \"arguments\": {}}"), [call("f", "{}")]);
    let named = "Hm[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g{\"n\": 2}";
    assert_eq!(pieces(NAMED, named), [text("Hm"), call("f", "{\"n\": 1}"), call("g", "{\"n\": 2}")]);
    let numbered = "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"n\": 1}[TOOL_CALLS]g[ARGS]{}";
    assert_eq!(pieces(NUMBERED, numbered), [call_with_id("abc", "f", "{\"n\": 1}"), call("g", "{}")]);
    for answer in [
        "[TOOL_CALLS]",
        "[TOOL_CALLS]f[ARGS]",
        "[TOOL_CALLS]f[ARGS]x",
        "[TOOL_CALLS][",
        "[TOOL_CALLS]f[ARGS][1]",
    ] {
        assert_eq!(pieces(NAMED, answer), [text(answer)]);
    }
}

#[test]
fn arguments_in_elements_have_the_types_of_the_schema() {
    let answer = "Hm\n<tool_call>\n<function=f>\n<parameter=a>\n12\n\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=any>\nx\n</parameter>\n\
                  </function>\n</tool_call>\n<tool_call><function=h></function></tool_call>";
    let expected = [text("Hm"), call("f", "{\"a\":\"12\\n\",\"n\":12,\"any\":\"x\"}"), call("h", "{}")];
    assert_eq!(pieces(ELEMENTS, answer), expected);
    for answer in
        ["<tool_call>\n<function=f>\n<parameter=a>\n", "<tool_call>\n<function=f>x", "<tool_call><function=>"]
    {
        assert_eq!(pieces(ELEMENTS, answer), [text(answer)]);
    }
    let answer = "<function=f>{\"a\": 1}</function><function=g>{}</function>";
    assert_eq!(pieces(FUNCTION, answer), [call("f", "{\"a\": 1}"), call("g", "{}")]);
}

#[test]
fn calls_of_keys_and_values() {
    let answer = "Hm.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>7 < 8\nä</arg_value>\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n\
                  <arg_key>any</arg_key><arg_value>[1, {}]</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>";
    let arguments = "{\"a\":\"7 < 8\\nä\",\"n\":7,\"any\":[1,{}]}";
    assert_eq!(pieces(KEYS, answer), [text("Hm."), call("f", arguments), call("g", "{}")]);
    for answer in [
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>7",
        "<tool_call>f\n<arg_key>a</arg_key>\n7</tool_call>",
        "<tool_call>f or g</tool_call>",
        "<tool_call></tool_call>",
    ] {
        assert_eq!(pieces(KEYS, answer), [text(answer)]);
    }
}

#[test]
fn calls_whose_keys_have_no_quotes() {
    let answer = "Hm.<|tool_call>call:f{a:<|'|>7, {\"x\"}\n<|'|>,n:-1.5e2,all:[<|'|>b<|'|>,true,{c:None}],word:Oslo}<tool_call|><|tool_call>call:g{}<tool_call|>";
    let arguments =
        "{\"a\":\"7, {\\\"x\\\"}\\n\",\"n\":-1.5e2,\"all\":[\"b\",true,{\"c\":null}],\"word\":\"Oslo\"}";
    let parsed: serde_json::Value = serde_json::from_str(arguments).expect("JSON");
    assert_eq!(pieces(MAPPING, answer), [text("Hm."), call("f", &parsed.to_string()), call("g", "{}")]);
    for answer in [
        "<|tool_call>call:f{a:<|'|>7",
        "<|tool_call>call:f{a:1",
        "<|tool_call>call:f{a 1}<tool_call|>",
        "<|tool_call>call:f(a)<tool_call|>",
        "<|tool_call>call:f{a:1]<tool_call|>",
    ] {
        assert_eq!(pieces(MAPPING, answer), [text(answer)]);
    }
}

#[test]
fn calls_with_their_names_as_keys() {
    let answer = "Hm.<|tools_prefix|>[{\"f\": {\"n\": 1}}, {\"g\":{}}]<|tools_suffix|>";
    assert_eq!(pieces(KEYED, answer), [text("Hm."), call("f", "{\"n\": 1}"), call("g", "{}")]);
    for answer in [
        "<|tools_prefix|>[{\"f\": 1}]",
        "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]",
        "<|tools_prefix|>[{\"f\"",
    ] {
        assert_eq!(pieces(KEYED, answer), [text(answer)]);
    }
}

#[test]
fn calls_in_a_section() {
    let one = "<call>function<sep>f\n```json\n{\"n\": 1}\n```</call>";
    let other = "<call>function<sep>g\n```json\n{}\n```</call>";
    let (f, g) = (call("f", "{\"n\": 1}"), call("g", "{}"));
    let both = format!("Hm.<calls>{one}\n{other}</calls>");
    assert_eq!(pieces(FENCED, &both), [text("Hm."), f.clone(), g.clone()]);
    assert_eq!(pieces(FENCED, &format!("{one}{other}")), [f.clone(), g]);
    assert_eq!(pieces(FENCED, &format!("<calls>{one}")), [f]);
    for answer in [
        "<calls>",
        "<calls>So",
        "<calls></calls>",
        "<calls><call>function<sep>f\n```json\n{\n```</call></calls>",
    ] {
        assert_eq!(pieces(FENCED, answer), [text(answer)]);
    }
    let calls = "<|calls|><|call|>functions.f:0<|args|>{\"n\": 1}<|end_call|><|call|>functions.g:1<|args|>{}<|end_call|><|end_calls|>";
    let found = [call_with_id("functions.f:0", "f", "{\"n\": 1}"), call_with_id("functions.g:1", "g", "{}")];
    assert_eq!(pieces(INDEXED, calls), found);
    assert_eq!(pieces(OWN_IDS, calls), found);
    let calls = "So.\n\n<｜X｜calls>\n<｜X｜invoke name=\"f\">\n<｜X｜parameter name=\"a\" string=\"true\">1</｜X｜parameter>\n\
                 <｜X｜parameter name=\"n\" string=\"false\">1</｜X｜parameter>\n</｜X｜invoke>\n</｜X｜calls>";
    assert_eq!(pieces(ATTRIBUTES, calls), [text("So."), call("f", "{\"a\":\"1\",\"n\":1}")]);
}

#[test]
fn calls_in_python() {
    let answer = "Hm.<|call_start|>[f(a='it\\'s \\u00e4\\n\\q', n=-1.5e2, any=[\"b\", True, {'c': None, 'd': (1,)}],), g()]<|call_end|>";
    let arguments = json!({"a": "it's ä\n\\q", "n": -150.0, "any": ["b", true, {"c": null, "d": [1]}]});
    let [one, f, g] = &*pieces(PYTHON, answer) else { panic!("three pieces") };
    assert_eq!((one, g), (&text("Hm."), &call("g", "{}")));
    let AnswerPiece::Call(f) = f else { panic!("a call") };
    assert_eq!(
        (&*f.name, serde_json::from_str::<serde_json::Value>(&f.arguments).expect("JSON")),
        ("f", arguments)
    );
    assert_eq!(pieces(PYTHON, "<|call_start|>f(n=1)<|call_end|>"), [call("f", "{\"n\":1}")]);
    let deep = format!("<|call_start|>[f(a={}1{})]<|call_end|>", "[".repeat(80), "]".repeat(80));
    for answer in [
        "<|call_start|>[f(a='x",
        "<|call_start|>[f(a=Tru)]<|call_end|>",
        "<|call_start|>[f(1)]<|call_end|>",
        "<|call_start|>[f(a='\\xzz')]<|call_end|>",
        "<|call_start|>[f(a={1: 2})]<|call_end|>",
        "<|call_start|>[f(a=1]<|call_end|>",
        "<|call_start|>[]<|call_end|>",
        &deep,
    ] {
        assert_eq!(pieces(PYTHON, answer), [text(answer)]);
    }
}

#[test]
fn calls_whose_ids_come_first() {
    let answer = "Hm.<|calls|><|begin|>ab1<|name|>f<|args|>{\"n\": 1}<|done|><|begin|>ab2<|name|>g<|args|>{}<|done|><|all|>";
    let expected = [text("Hm."), call_with_id("ab1", "f", "{\"n\": 1}"), call_with_id("ab2", "g", "{}")];
    assert_eq!(pieces(ID_FIRST, answer), expected);
    for answer in
        ["<|calls|><|begin|>ab1", "<|calls|><|begin|>ab1<|name|>f<|args|>{", "<|begin|>1<|name|><|args|>{}"]
    {
        assert_eq!(pieces(ID_FIRST, answer), [text(answer)]);
    }
}

static SYNTAXES: LazyLock<Vec<ToolSyntax>> = LazyLock::new(|| {
    let all = [
        HERMES, LLAMA, LIST, NAMED, NUMBERED, FUNCTION, ELEMENTS, KEYS, FENCED, INDEXED, ATTRIBUTES, PYTHON,
        ID_FIRST,
    ];
    all.iter().map(|call| syntax(call).expect("a syntax")).collect()
});

proptest! {
    /// Text is lost only around calls, and pieces do not change what is found.
    #[test]
    fn any_answer_is_parsed_alike_in_pieces(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "<tool_call>", "</tool_call>", "<tool", "<calls>", "</calls>", "<call>function<sep>", "\n```</call>", "<|calls|>", "<|call|>functions.", ":0<|args|>", "[TOOL_CALLS]", "[ARGS]", "<function=", "f>", "</function>", "<parameter=a>",
                "</parameter>", "<arg_key>a</arg_key>", "<arg_value>", "</arg_value>", "{\"name\": \"f\"", ", ", "\"arguments\": {}", "\"parameters\": {\"a\": 1e", "5", "}", "{", "[", "]", "\"", "\\", "\n",
                "<|call_start|>", "f(a=", "'x'", ")", "<|call_end|>", "<|begin|>", "<|name|>", "<|args|>", " ", "f", "ä", "<|python_tag|>", ";",
            ]),
            0..14,
        ),
    ) {
        let whole = words.concat();
        for syntax in SYNTAXES.iter() {
            let found = parsed(syntax, &[&whole]);
            prop_assert_eq!(&parsed(syntax, &words), &found);
            prop_assert_eq!(&parsed(syntax, &whole.split("").collect::<Vec<_>>()), &found);
            if !found.iter().any(|piece| matches!(piece, AnswerPiece::Call(_))) {
                prop_assert_eq!(found, Some(text(&whole)).filter(|_| !whole.is_empty()).into_iter().collect::<Vec<_>>());
            }
        }
    }
}
