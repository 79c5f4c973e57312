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

    use llguidance::api::{ParserLimits, TopLevelGrammar};
    use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
    use llguidance::{Matcher, ParserFactory};

    use crate::text::{AnswerShape, TextModel, lark};

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

        /// Makes the grammar of an answer.
        ///
        /// # Errors
        /// Returns an error if a schema cannot be used, or the syntax of the calls cannot be enforced.
        pub(crate) fn answer(
            &self,
            text: &TextModel,
            shape: AnswerShape<'_>,
        ) -> Result<AnswerGrammar, String> {
            let grammar = TopLevelGrammar::from_lark(lark::answer(text, shape)?);
            let matcher = Matcher::new(self.0.create_parser(grammar));
            match matcher.get_error() {
                Some(error) => Err(error.lines().next().unwrap_or_default().to_owned()),
                None => Ok(AnswerGrammar(matcher)),
            }
        }
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

    use crate::text::{AnswerShape, TextModel};

    /// Uninhabited stand-in for what makes grammars.
    #[derive(Debug)]
    pub(crate) struct GrammarFactory(Infallible);

    impl GrammarFactory {
        pub(crate) fn new(_: &TextModel) -> Result<Self, String> {
            Err("this program was built without JSON schemas".to_owned())
        }

        pub(crate) fn answer(&self, _: &TextModel, _: AnswerShape<'_>) -> Result<AnswerGrammar, String> {
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
