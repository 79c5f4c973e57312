//! Answers that follow a JSON schema: the tokens that may come next.
//!
//! Facts: the crate `llguidance` 1.9, which bounds the work for a schema and for a token, and turns its own panics into errors.

#[cfg(feature = "schemas")]
pub(crate) use with::{AnswerGrammar, GrammarFactory};
#[cfg(not(feature = "schemas"))]
pub(crate) use without::{AnswerGrammar, GrammarFactory};

#[cfg(feature = "schemas")]
mod with {
    use std::fmt;
    use std::sync::Arc;

    use chat_template::{CallBody, CallId, ElementMarks, Tool, ToolSyntax, texts_of_schema, words_of_mark};
    use llguidance::api::{ParserLimits, TopLevelGrammar};
    use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
    use llguidance::{Matcher, ParserFactory};
    use serde_json::{Value, json};

    use crate::text::TextModel;

    /// Work for the masks of a step and for a grammar, about a hundredth and a tenth of a second.
    const LIMITS: ParserLimits = ParserLimits {
        max_items_in_row: 2000,
        initial_lexer_fuel: 500_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    };

    /// Makes grammars for the tokens of a model.
    pub(crate) struct GrammarFactory(ParserFactory);

    impl fmt::Debug for GrammarFactory {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("GrammarFactory")
        }
    }

    impl GrammarFactory {
        /// Reads the tokens of a model.
        ///
        /// # Errors
        /// Returns an error if they cannot be used.
        pub(crate) fn new(text: &TextModel) -> Result<Self, String> {
            let vocab = u32::try_from(text.forward.vocab()).map_err(|error| error.to_string())?;
            let word = |token: u32| {
                let bytes = text.tokenizer.token_bytes(token);
                let is_special = text.tokenizer.is_special(token) && !bytes.is_empty();
                if is_special { [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes.as_slice()].concat() } else { bytes }
            };
            let mut words: Vec<Vec<u8>> = (0..vocab).map(word).collect();
            // A model without stop tokens gets one that it never chooses: an answer ends where nothing else may follow.
            let mut stops: Vec<u32> = text.stops.iter().copied().filter(|stop| *stop < vocab).collect();
            if stops.is_empty() {
                words.push(Vec::new());
                stops.push(vocab);
            }
            let count = u32::try_from(words.len()).map_err(|error| error.to_string())?;
            let trie =
                TokTrie::from(&TokRxInfo::new(count, stops.first().copied().unwrap_or_default()), &words);
            let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie.with_eos_tokens(&stops)));
            let factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &[]);
            let mut factory = factory.map_err(|error| error.to_string())?;
            factory.quiet();
            *factory.limits_mut() = LIMITS;
            Ok(Self(factory))
        }

        /// Makes the grammar of texts that are JSON of a schema, without white space that the schema does not ask for.
        ///
        /// # Errors
        /// Returns an error if the schema cannot be used.
        pub(crate) fn json(&self, schema: Value) -> Result<AnswerGrammar, String> {
            self.answer(TopLevelGrammar::from_json_schema(without_space(schema)?))
        }

        /// Makes the grammar of texts that are calls of `tools`, or JSON of the schema `instead`.
        ///
        /// # Errors
        /// Returns an error if a schema cannot be used, or the syntax cannot be enforced.
        pub(crate) fn calls(
            &self,
            text: &TextModel,
            syntax: &ToolSyntax,
            tools: &[&Tool],
            is_single: bool,
            instead: Option<Value>,
        ) -> Result<AnswerGrammar, String> {
            self.answer(TopLevelGrammar::from_lark(lark(text, syntax, tools, is_single, instead)?))
        }

        /// Makes the grammar of answers in channels: an analysis, which may be absent, and a call of one of `tools`, or JSON of the schema
        /// `instead`.
        ///
        /// # Errors
        /// Returns an error if a schema cannot be used.
        pub(crate) fn channels(
            &self,
            text: &TextModel,
            tools: &[&Tool],
            instead: Option<Value>,
        ) -> Result<AnswerGrammar, String> {
            let mark = |mark: &str| marked(text, mark);
            let mut answers = Vec::new();
            for tool in tools {
                let head = mark(&format!(
                    "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>",
                    tool.name
                ));
                let arguments = without_space(tool.parameters.clone())?;
                answers.push(format!("{head} %json {arguments} {}", mark("<|call|>")));
            }
            if let Some(schema) = instead {
                let head = mark("<|channel|>final<|message|>");
                answers.push(format!("{head} %json {}", without_space(schema)?));
            }
            let before = mark("<|channel|>analysis<|message|>");
            let after = mark("<|end|><|start|>assistant");
            let lark = format!(
                "start: analysis? answer\nanalysis: {before} /(?s:.*)/ {after}\nanswer: {}\n",
                answers.join(" | ")
            );
            self.answer(TopLevelGrammar::from_lark(lark))
        }

        fn answer(&self, grammar: TopLevelGrammar) -> Result<AnswerGrammar, String> {
            let matcher = Matcher::new(self.0.create_parser(grammar));
            match matcher.get_error() {
                Some(error) => Err(error.lines().next().unwrap_or_default().to_owned()),
                None => Ok(AnswerGrammar(matcher)),
            }
        }
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

    /// Writes the grammar of calls in Lark's language.
    fn lark(
        text: &TextModel,
        syntax: &ToolSyntax,
        tools: &[&Tool],
        is_single: bool,
        instead: Option<Value>,
    ) -> Result<String, String> {
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
                    let id = id.as_ref().map(|CallId { before, prefix, .. }| {
                        let form = if prefix.is_some() { "[0-9]{1,3}" } else { "[a-zA-Z0-9]{9}" };
                        format!("{} /{form}/", mark(before))
                    });
                    let head = [quoted(&tool.name), id.unwrap_or_default(), mark(before_arguments)];
                    format!("{} {}", head.join(" "), arguments()?)
                }
                CallBody::Elements(marks) => {
                    let elements = elements(text, marks, tool, &format!("f{number}"), &mut rules)?;
                    format!("{} {elements}", quoted(&tool.name))
                }
                CallBody::Mapping { quote } => {
                    let mapping = mapping(text, quote, tool, &format!("f{number}"), &mut rules)?;
                    format!("{} {mapping}", quoted(&tool.name))
                }
                _ => return Err("the form of this model's calls cannot be enforced".to_owned()),
            };
            names.push(format!("f{number}"));
            rules.push(format!("f{number}: {call}\n"));
        }
        let (lead, tail) = (mark(&syntax.lead), mark(&syntax.tail));
        let is_list =
            matches!(syntax.body, CallBody::Object { is_list: true, .. } | CallBody::Keyed { is_list: true });
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
        let instead = instead.map(without_space).transpose()?;
        let instead = instead.map(|schema| format!(" | %json {schema}")).unwrap_or_default();
        Ok(format!("start: calls{instead}\ncalls: {calls}\ncall: {}\n{}", names.join(" | "), rules.concat()))
    }

    /// Returns the grammar of the elements of arguments, in the order of the schema, and adds rules for their values.
    fn elements(
        text: &TextModel,
        marks: &ElementMarks,
        tool: &Tool,
        name: &str,
        rules: &mut Vec<String>,
    ) -> Result<String, String> {
        if marks.end_of_attributes.is_some() {
            return Err("this model writes attributes with arguments, which cannot be enforced".to_owned());
        }
        let (before, after) = (marked(text, &marks.before_key), marked(text, &marks.after_key));
        let after_value = marked(text, &marks.after_value);
        let mut grammar = vec![marked(text, &marks.after_name)];
        for (number, (key, is_required)) in properties(tool).enumerate() {
            let rule = format!("{name}v{number}");
            let (_, value) = argument(text, tool, key, &marks.after_value, &after_value)?;
            rules.push(format!("{rule}{value}\n"));
            let optional = if is_required { "" } else { "?" };
            grammar.push(format!("({before} {} {after} {rule} /\\n?/){optional}", quoted(key)));
        }
        Ok(grammar.join(" "))
    }

    /// Returns the grammar of an object whose texts have a quote of their own, with the required arguments first.
    fn mapping(
        text: &TextModel,
        quote: &str,
        tool: &Tool,
        name: &str,
        rules: &mut Vec<String>,
    ) -> Result<String, String> {
        let mut entries = Vec::new();
        for (number, (key, is_required)) in properties(tool).enumerate() {
            let rule = format!("{name}v{number}");
            let (is_text, value) = argument(text, tool, key, quote, "")?;
            let schema = tool.argument(key).and_then(|schema| schema.get("type")).and_then(Value::as_str);
            if !is_text && !matches!(schema, Some("integer" | "number" | "boolean")) {
                return Err(format!(
                    "`{key}` is neither a text nor a number, and this model has quotes of its own"
                ));
            }
            rules.push(format!("{rule}{value}\n"));
            let before = if is_text { marked(text, quote) } else { String::new() };
            entries.push((!is_required, format!("{} {before} {rule}", quoted(&format!("{key}:")))));
        }
        entries.sort_by_key(|(is_optional, _)| *is_optional);
        let mut all = String::new();
        for (number, (is_optional, entry)) in entries.iter().enumerate() {
            let entry = if number == 0 { entry.clone() } else { format!("\",\" {entry}") };
            all = if *is_optional && number > 0 {
                format!("{all} ({entry})?")
            } else {
                format!("{all} {entry}")
            };
        }
        if entries.first().is_some_and(|(is_optional, _)| *is_optional) {
            all = format!("({all})?");
        }
        Ok(format!("\"{{\" {all} \"}}\""))
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
            if let (Some(schema), Some(definitions)) = (schema.as_object_mut(), tool.parameters.get("$defs"))
            {
                schema.insert("$defs".to_owned(), definitions.clone());
            }
            return Ok((false, format!(": %json {schema} {json_end}")));
        };
        let rule = match texts {
            Some(texts) => {
                let texts: Vec<String> = texts.into_iter().map(quoted).collect();
                format!(": ({}) {}", texts.join(" | "), marked(text, end))
            }
            None if text.special_token(end.trim()).is_some() => format!(": /(?s:.*)/ {}", marked(text, end)),
            None => format!("[suffix={}]: /(?s:.*)/", quoted(end)),
        };
        Ok((true, rule))
    }

    fn quoted(text: &str) -> String {
        Value::from(text).to_string()
    }

    /// Returns the grammar of a mark, whose words may be special tokens.
    fn marked(text: &TextModel, mark: &str) -> String {
        let word = |word: &str| match text.special_token(word.trim()) {
            Some(token) => {
                let (before, after) = word.split_once(word.trim()).unwrap_or_default();
                format!("{} <[{token}]> {}", Value::from(before), Value::from(after))
            }
            None => Value::from(word).to_string(),
        };
        words_of_mark(mark).map(word).collect::<Vec<_>>().join(" ")
    }

    /// Tokens that may follow in one answer.
    pub(crate) struct AnswerGrammar(Matcher);

    impl Clone for AnswerGrammar {
        fn clone(&self) -> Self {
            Self(self.0.deep_clone())
        }
    }

    impl fmt::Debug for AnswerGrammar {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("AnswerGrammar")
        }
    }

    impl AnswerGrammar {
        /// Makes the tokens that may not come next impossible. Returns false if none may.
        ///
        /// # Errors
        /// Returns an error if the schema takes too much work.
        pub(crate) fn mask(&mut self, logits: &mut [f32]) -> Result<bool, String> {
            let allowed = self.0.compute_mask_or_eos().map_err(|error| error.to_string())?;
            let mut is_any = false;
            for (token, logit) in (0_u32..).zip(logits) {
                if allowed.is_allowed(token) {
                    is_any = true;
                } else {
                    *logit = f32::NEG_INFINITY;
                }
            }
            Ok(is_any)
        }

        /// Records a token. Returns true if the answer is complete.
        ///
        /// # Errors
        /// Returns an error if the token may not come next.
        pub(crate) fn push(&mut self, token: u32) -> Result<bool, String> {
            self.0.consume_token(token).map_err(|error| error.to_string())?;
            Ok(self.0.is_stopped())
        }
    }
}

#[cfg(not(feature = "schemas"))]
mod without {
    use std::convert::Infallible;

    use chat_template::{Tool, ToolSyntax};
    use serde_json::Value;

    use crate::text::TextModel;

    /// Uninhabited stand-in for what makes grammars.
    #[derive(Debug)]
    pub(crate) struct GrammarFactory(Infallible);

    impl GrammarFactory {
        pub(crate) fn new(_: &TextModel) -> Result<Self, String> {
            Err("this program was built without JSON schemas".to_owned())
        }

        pub(crate) fn json(&self, _: Value) -> Result<AnswerGrammar, String> {
            match self.0 {}
        }

        pub(crate) fn calls(
            &self,
            _: &TextModel,
            _: &ToolSyntax,
            _: &[&Tool],
            _: bool,
            _: Option<Value>,
        ) -> Result<AnswerGrammar, String> {
            match self.0 {}
        }

        pub(crate) fn channels(
            &self,
            _: &TextModel,
            _: &[&Tool],
            _: Option<Value>,
        ) -> Result<AnswerGrammar, String> {
            match self.0 {}
        }
    }

    /// Uninhabited stand-in for a grammar.
    #[derive(Clone, Debug)]
    pub(crate) struct AnswerGrammar(Infallible);

    impl AnswerGrammar {
        pub(crate) fn mask(&mut self, _: &mut [f32]) -> Result<bool, String> {
            match self.0 {}
        }

        pub(crate) fn push(&mut self, _: u32) -> Result<bool, String> {
            match self.0 {}
        }
    }
}
