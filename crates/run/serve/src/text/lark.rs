//! Grammars of answers in Lark's language, as `llguidance` reads it.

use chat_template::{
    Attributes, CallBody, CallId, ElementMarks, ThoughtMarks, ThoughtPlace, Tool, ToolSyntax, texts_of_schema,
};
use serde_json::{Value, json};

use super::TextModel;
use super::answer_shape::{AnswerHead, AnswerShape};
use super::lark_texts::{any_text, marked, quoted};
use super::lark_values::{Notation, ValueRules};

/// Ids, in the only form that the templates of Mistral take.
const ID: &str = "/[a-zA-Z0-9]{9}/";

/// Writes the grammar of an answer.
///
/// # Errors
/// Returns an error if a schema cannot be used, or the syntax of the calls cannot be enforced.
pub(super) fn answer(text: &TextModel, shape: AnswerShape<'_>) -> Result<String, String> {
    let AnswerShape { head, tools, syntax, is_single, schema } = shape;
    let schema = schema.map(without_space).transpose()?;
    if matches!(head, AnswerHead::Channels) {
        return channels(text, tools, schema.as_ref());
    }
    let (mut answers, mut rules) = (Vec::new(), String::new());
    if let Some(syntax) = syntax.filter(|_| !tools.is_empty()) {
        answers.push("calls".to_owned());
        rules.push_str(&calls(text, syntax, tools, is_single)?);
    }
    answers.extend(schema.map(|schema| format!("%json {schema}")));
    let before = match head {
        AnswerHead::Thought(marks, place) if place != ThoughtPlace::Ended => {
            rules.push_str(&thought(text, marks, place));
            if place == ThoughtPlace::Begun { "thought" } else { "thought?" }
        }
        _ => "",
    };
    Ok(format!("start: {before} answer\nanswer: {}\n{rules}", answers.join(" | ")))
}

/// Writes the grammar of a thought, with the lines that templates leave empty after it.
fn thought(text: &TextModel, marks: &ThoughtMarks, place: ThoughtPlace) -> String {
    let start = match place {
        ThoughtPlace::Possible => marked(text, &marks.start),
        _ => String::new(),
    };
    let rest = any_text(text, &marks.end);
    format!("thought: {start} thought_text /\\n{{0,2}}/\nthought_text{rest}\n")
}

/// Writes the grammar of answers in channels: an analysis, which may be absent, and a call of one of `tools`, or JSON of the schema.
fn channels(text: &TextModel, tools: &[&Tool], schema: Option<&Value>) -> Result<String, String> {
    let mark = |mark: &str| marked(text, mark);
    let mut answers = Vec::new();
    for tool in tools {
        let head =
            mark(&format!("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", tool.name));
        let arguments = without_space(tool.parameters.clone())?;
        answers.push(format!("{head} %json {arguments} {}", mark("<|call|>")));
    }
    if let Some(schema) = schema {
        answers.push(format!("{} %json {schema}", mark("<|channel|>final<|message|>")));
    }
    let before = mark("<|channel|>analysis<|message|>");
    let after = mark("<|end|><|start|>assistant");
    Ok(format!(
        "start: analysis? answer\nanalysis: {before} /(?s:.*)/ {after}\nanswer: {}\n",
        answers.join(" | ")
    ))
}

/// Forbids white space that a schema does not ask for, which a model could write without end.
fn without_space(mut schema: Value) -> Result<Value, String> {
    if schema.is_boolean() {
        schema = json!({});
    }
    let Some(members) = schema.as_object_mut() else { return Err("it is not an object".to_owned()) };
    let separators = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
    members.insert("x-guidance".to_owned(), separators);
    Ok(schema)
}

/// Writes the grammar of calls.
fn calls(text: &TextModel, syntax: &ToolSyntax, tools: &[&Tool], is_single: bool) -> Result<String, String> {
    let mark = |mark: &str| marked(text, mark);
    let (mut rules, mut names) = (Vec::new(), Vec::new());
    for (number, tool) in tools.iter().enumerate() {
        let arguments = || Ok::<_, String>(format!("%json {}", without_space(tool.parameters.clone())?));
        let call = match &syntax.body {
            CallBody::Object { name_key, arguments_key, .. } => {
                let name = quoted(&tool.name);
                let head = format!("{{{}: {name}, {}: ", quoted(name_key), quoted(arguments_key));
                format!("{} {} \"}}\"", quoted(&head), arguments()?)
            }
            CallBody::Keyed { .. } => {
                format!("{} {} \"}}\"", quoted(&format!("{{{}: ", quoted(&tool.name))), arguments()?)
            }
            CallBody::Named { id, before_arguments } => {
                let name = quoted(&tool.name);
                let head = match id {
                    Some(CallId { before, is_first: true, .. }) => format!("{ID} {} {name}", mark(before)),
                    Some(CallId { before, prefix: None, .. }) => format!("{name} {} {ID}", mark(before)),
                    Some(CallId { before, .. }) => format!("{name} {} /[0-9]{{1,3}}/", mark(before)),
                    None => name,
                };
                format!("{head} {} {}", mark(before_arguments), arguments()?)
            }
            CallBody::Elements(marks) => {
                let elements = elements(text, marks, tool, &format!("f{number}"), &mut rules)?;
                format!("{} {elements}", quoted(&tool.name))
            }
            CallBody::Mapping { quote } => values(text, tool, Notation::Quote(quote), number, &mut rules)?,
            CallBody::Python => values(text, tool, Notation::Python, number, &mut rules)?,
            _ => return Err("the form of this model's calls cannot be enforced".to_owned()),
        };
        names.push(format!("f{number}"));
        rules.push(format!("f{number}: {call}\n"));
    }
    let (lead, tail) = (mark(&syntax.lead), mark(&syntax.tail));
    let is_list = matches!(
        syntax.body,
        CallBody::Object { is_list: true, .. } | CallBody::Keyed { is_list: true } | CallBody::Python
    );
    let between = match &syntax.body {
        _ if is_list => "\", \"",
        CallBody::Object { .. } | CallBody::Keyed { .. } => "\"\\n\"",
        _ => "",
    };
    let one = if is_list { "call".to_owned() } else { format!("{lead} call {tail}") };
    // Without marks, only one call is an answer.
    let is_single = is_single || syntax.opening().is_empty();
    let more = if is_single { String::new() } else { format!("({between} {one})*") };
    let calls =
        if is_list { format!("{lead} \"[\" {one} {more} \"]\" {tail}") } else { format!("{one} {more}") };
    let calls = format!("{} {calls} {}", mark(&syntax.section_lead), mark(&syntax.section_tail));
    Ok(format!("calls: {calls}\ncall: {}\n{}", names.join(" | "), rules.concat()))
}

/// Returns the grammar of the elements of arguments, in the order of the schema, and adds rules for their values.
fn elements(
    text: &TextModel,
    marks: &ElementMarks,
    tool: &Tool,
    name: &str,
    rules: &mut Vec<String>,
) -> Result<String, String> {
    let (before, after) = (marked(text, &marks.before_key), marked(text, &marks.after_key));
    let after_value = marked(text, &marks.after_value);
    let mut grammar = vec![marked(text, &marks.after_name)];
    for (number, (key, is_required)) in properties(tool).enumerate() {
        let rule = format!("{name}v{number}");
        let (is_text, value) = argument(text, tool, key, &marks.after_value, &after_value)?;
        rules.push(format!("{rule}{value}\n"));
        let attributes = marks.attributes.as_ref().map(|Attributes { of_text, of_number, end, .. }| {
            format!("{} {}", quoted(if is_text { of_text } else { of_number }), marked(text, end))
        });
        let attributes = attributes.unwrap_or_default();
        let optional = if is_required { "" } else { "?" };
        grammar.push(format!("({before} {} {after} {attributes} {rule} /\\n?/){optional}", quoted(key)));
    }
    Ok(grammar.join(" "))
}

/// Returns the grammar of a name and arguments that are not JSON, and adds rules for their values.
fn values(
    text: &TextModel,
    tool: &Tool,
    notation: Notation<'_>,
    number: usize,
    rules: &mut Vec<String>,
) -> Result<String, String> {
    let name = format!("f{number}");
    let mut values = ValueRules { text, tool, notation, name, rules: Vec::new(), definitions: Vec::new() };
    let arguments = values.arguments()?;
    rules.append(&mut values.rules);
    Ok(format!("{} {arguments}", quoted(&tool.name)))
}

/// Returns the arguments of a tool, and whether they are required.
fn properties(tool: &Tool) -> impl Iterator<Item = (&String, bool)> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let is_required = move |key: &String| required.is_some_and(|all| all.iter().any(|name| name == key));
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(move |(key, _)| (key, is_required(key)))
}

/// Returns the rest of a rule for the value of an argument: a text up to `end`, which is part of it, or JSON and the grammar `json_end`. The
/// first part is true for a text.
fn argument(
    text: &TextModel,
    tool: &Tool,
    key: &str,
    end: &str,
    json_end: &str,
) -> Result<(bool, String), String> {
    let schema = tool.argument(key).ok_or_else(|| format!("the schema of `{key}` is not in the tool"))?;
    let Some(texts) = texts_of_schema(schema) else {
        let mut schema = without_space(schema.clone())?;
        if let (Some(schema), Some(definitions)) = (schema.as_object_mut(), tool.parameters.get("$defs")) {
            schema.insert("$defs".to_owned(), definitions.clone());
        }
        return Ok((false, format!(": %json {schema} {json_end}")));
    };
    let rule = match texts {
        Some(texts) => {
            let texts: Vec<String> = texts.into_iter().map(quoted).collect();
            format!(": ({}) {}", texts.join(" | "), marked(text, end))
        }
        None => any_text(text, end),
    };
    Ok((true, rule))
}
