//! Grammars of arguments that are not JSON: values as Gemma 4 and Python write them.

use chat_template::Tool;
use serde_json::{Map, Value};

use super::TextModel;
use super::lark_texts::{any_text, marked, quoted};

/// Most values inside each other.
const DEPTH_MAX: usize = 32;
/// Most items of a list whose schema has a maximum; more need too much of a grammar.
const ITEMS_MAX: u64 = 100;
/// Keywords that these grammars do not have.
const UNKNOWN: &[&str] =
    &["allOf", "not", "if", "prefixItems", "contains", "patternProperties", "uniqueItems"];

/// Way in which values are written.
#[derive(Clone, Copy)]
pub(super) enum Notation<'n> {
    /// Texts have this quote, and keys none.
    Quote(&'n str),
    /// Literals of Python.
    Python,
}

/// Writer of the rules for the arguments of a tool.
pub(super) struct ValueRules<'r> {
    pub(super) text: &'r TextModel,
    pub(super) tool: &'r Tool,
    pub(super) notation: Notation<'r>,
    /// Start of the names of the rules.
    pub(super) name: String,
    pub(super) rules: Vec<String>,
    /// Rules of definitions, by their pointers.
    pub(super) definitions: Vec<(String, String)>,
}

impl ValueRules<'_> {
    /// Returns the grammar of the arguments of the tool, in brackets.
    ///
    /// # Errors
    /// Returns an error if a schema cannot be enforced.
    pub(super) fn arguments(&mut self) -> Result<String, String> {
        let parameters = &self.tool.parameters;
        match self.notation {
            Notation::Quote(_) => self.members(parameters, ["{", ":", ",", "}"], str::to_owned, 0),
            Notation::Python => self.members(parameters, ["(", "=", ", ", ")"], str::to_owned, 0),
        }
    }

    /// Returns the grammar of members in the signs that begin, assign, separate and end them, with the required ones first.
    fn members(
        &mut self,
        schema: &Value,
        [begin, assign, separate, end]: [&str; 4],
        written: impl Fn(&str) -> String,
        depth: usize,
    ) -> Result<String, String> {
        let required = schema.get("required").and_then(Value::as_array);
        let is_optional = |key: &str| !required.is_some_and(|all| all.iter().any(|name| name == key));
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut members = Vec::new();
        for (key, schema) in properties {
            let value = self.value(schema, depth).map_err(|error| format!("`{key}`: {error}"))?;
            members
                .push((is_optional(key), format!("{} {value}", quoted(&[&written(key), assign].concat()))));
        }
        members.sort_by_key(|(is_optional, _)| *is_optional);
        let mut all = String::new();
        for (number, (is_optional, member)) in members.iter().enumerate() {
            let member = if number == 0 { member.clone() } else { format!("{} {member}", quoted(separate)) };
            all = if *is_optional && number > 0 {
                format!("{all} ({member})?")
            } else {
                format!("{all} {member}")
            };
        }
        if members.first().is_some_and(|(is_optional, _)| *is_optional) {
            all = format!("({all})?");
        }
        Ok(format!("{} {all} {}", quoted(begin), quoted(end)))
    }

    /// Returns the grammar of a value.
    fn value(&mut self, schema: &Value, depth: usize) -> Result<String, String> {
        if depth > DEPTH_MAX {
            return Err("the schema is too deep".to_owned());
        }
        if let Some(keyword) = UNKNOWN.iter().find(|keyword| schema.get(**keyword).is_some()) {
            return Err(format!("`{keyword}` cannot be enforced in this model's calls"));
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.definition(reference, depth);
        }
        let alternatives =
            |values: &[Value]| values.iter().map(|value| self.literal(value)).collect::<Vec<_>>();
        let listed = schema.get("enum").and_then(Value::as_array).map(|listed| alternatives(listed));
        let listed = listed.or_else(|| Some(alternatives(std::slice::from_ref(schema.get("const")?))));
        if let Some(listed) = listed {
            return Ok(format!("({})", listed.join(" | ")));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(schemas) = schema.get(keyword).and_then(Value::as_array) {
                let all: Result<Vec<String>, String> =
                    schemas.iter().map(|schema| self.value(schema, depth.saturating_add(1))).collect();
                return Ok(format!("({})", all?.join(" | ")));
            }
        }
        let types = match schema.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => return Err("its schema has no type".to_owned()),
        };
        let all: Result<Vec<String>, String> =
            types.iter().map(|kind| self.of_type(kind, schema, depth)).collect();
        Ok(format!("({})", all?.join(" | ")))
    }

    fn of_type(&mut self, kind: &str, schema: &Value, depth: usize) -> Result<String, String> {
        let depth = depth.saturating_add(1);
        match (kind, self.notation) {
            ("string", Notation::Quote(quote)) => {
                let rule = self.rule(&any_text(self.text, quote));
                Ok(format!("{} {rule}", marked(self.text, quote)))
            }
            ("string", Notation::Python) => Ok(r"/'([^'\\\n]|\\['\\nt])*'/".to_owned()),
            ("integer" | "number", _) => {
                let mut schema = schema.as_object().cloned().unwrap_or_default();
                schema.insert("type".to_owned(), kind.into());
                Ok(format!("%json {}", Value::from(schema)))
            }
            ("boolean", _) => {
                Ok(format!("({} | {})", self.literal(&Value::Bool(true)), self.literal(&Value::Bool(false))))
            }
            ("null", _) => Ok(self.literal(&Value::Null)),
            ("array", _) => self.list(schema, depth),
            ("object", notation) => {
                if schema.get("properties").is_none() {
                    return Err(
                        "an object without `properties` cannot be enforced in this model's calls".to_owned()
                    );
                }
                match notation {
                    Notation::Quote(_) => self.members(schema, ["{", ":", ",", "}"], str::to_owned, depth),
                    Notation::Python => self.members(schema, ["{", ": ", ", ", "}"], python_text, depth),
                }
            }
            _ => Err(format!("`{kind}` is not a type")),
        }
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Result<String, String> {
        let items = schema.get("items").filter(|items| items.is_object());
        let items = items.ok_or("a list without `items` cannot be enforced in this model's calls")?;
        let item = self.value(items, depth)?;
        let item = self.rule(&format!(": {item}"));
        let number = |key: &str| schema.get(key).and_then(Value::as_u64);
        let least = number("minItems").unwrap_or(0);
        let most = number("maxItems");
        if most.unwrap_or(least) > ITEMS_MAX || most.is_some_and(|most| most < least) {
            return Err(format!("a list can have at most {ITEMS_MAX} items in this model's calls"));
        }
        let separator = match self.notation {
            Notation::Quote(_) => ",",
            Notation::Python => ", ",
        };
        let more = most.map(|most| most.saturating_sub(1).to_string()).unwrap_or_default();
        let items = format!("{item} ({} {item}){{{},{more}}}", quoted(separator), least.saturating_sub(1));
        Ok(match (least, most) {
            (_, Some(0)) => "\"[\" \"]\"".to_owned(),
            (0, _) => format!("\"[\" ({items})? \"]\""),
            _ => format!("\"[\" {items} \"]\""),
        })
    }

    /// Returns the rule of a definition, which may have itself in it.
    fn definition(&mut self, reference: &str, depth: usize) -> Result<String, String> {
        if let Some((_, rule)) = self.definitions.iter().find(|(pointer, _)| pointer == reference) {
            return Ok(rule.clone());
        }
        let pointer =
            reference.strip_prefix('#').ok_or_else(|| format!("`{reference}` is not in the tool"))?;
        let schema = self.tool.parameters.pointer(pointer).cloned();
        let schema = schema.ok_or_else(|| format!("`{reference}` is not in the tool"))?;
        let rule = format!("{}d{}", self.name, self.definitions.len());
        self.definitions.push((reference.to_owned(), rule.clone()));
        let value = self.value(&schema, depth.saturating_add(1))?;
        self.rules.push(format!("{rule}: {value}\n"));
        Ok(rule)
    }

    /// Adds a rule, whose rest begins after its name.
    fn rule(&mut self, rest: &str) -> String {
        let rule = format!("{}v{}", self.name, self.rules.len());
        self.rules.push(format!("{rule}{rest}\n"));
        rule
    }

    /// Returns the grammar of one value.
    fn literal(&self, value: &Value) -> String {
        match (value, self.notation) {
            (Value::String(text), Notation::Quote(quote)) => {
                format!("{} {} {}", marked(self.text, quote), quoted(text), marked(self.text, quote))
            }
            (Value::String(text), Notation::Python) => quoted(&python_text(text)),
            (Value::Bool(is_true), Notation::Python) => quoted(if *is_true { "True" } else { "False" }),
            (Value::Null, Notation::Python) => quoted("None"),
            _ => quoted(&value.to_string()),
        }
    }
}

/// Writes a text as a literal of Python.
fn python_text(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => literal.extend(['\\', c]),
            '\n' => literal.push_str("\\n"),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}
