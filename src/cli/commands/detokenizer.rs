//! Tokenizer of a carton, if this program was built with the feature `tokenizer`.

#[cfg(feature = "tokenizer")]
pub(super) use with::{Detokenizer, TokenStream};
#[cfg(not(feature = "tokenizer"))]
pub(super) use without::{Detokenizer, TokenStream};

#[cfg(feature = "tokenizer")]
mod with {
    use anyhow::Result;
    use generate::{TOKENIZER_FILE_MAX, Tokenizer};
    use runtime::Runnable;

    pub(crate) use generate::TokenStream;

    /// Tokenizer of a carton, which turns text into tokens and back.
    pub(crate) struct Detokenizer(Tokenizer);

    impl Detokenizer {
        pub(crate) fn required(runnable: &Runnable) -> Result<Self> {
            let mut read = |name: &str| runnable.misc(name, TOKENIZER_FILE_MAX);
            Ok(Self(Tokenizer::from_files::<byte_source::Error>(&mut read)?))
        }

        /// Returns the tokenizer for output that can do without text: `None` if it cannot be loaded.
        pub(crate) fn optional(runnable: &Runnable) -> Option<Self> {
            Self::required(runnable).ok()
        }

        pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>> {
            Ok(self.0.encode(text)?)
        }

        pub(crate) fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
            Ok(self.0.encode_rendered(text)?)
        }

        pub(crate) fn text_of(&self, token: u32) -> Result<String> {
            Ok(self.0.decode_one(token)?)
        }

        pub(crate) fn stops(&self) -> Vec<u32> {
            self.0.stops().to_vec()
        }

        pub(crate) fn stream(&self, prompt: &[u32]) -> Result<TokenStream<'_>> {
            Ok(self.0.stream(prompt)?)
        }

        /// Returns a stream that shows these special tokens, too.
        pub(crate) fn stream_with(&self, prompt: &[u32], shown: &[&str]) -> Result<TokenStream<'_>> {
            let mut tokens = Vec::new();
            for word in shown {
                if let [token] = *self.0.encode_rendered(word)?
                    && self.0.is_special(token)
                {
                    tokens.push(token);
                }
            }
            Ok(self.0.stream(prompt)?.showing(tokens)?)
        }
    }
}

#[cfg(not(feature = "tokenizer"))]
mod without {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use anyhow::Result;
    use runtime::Runnable;

    use crate::cli::ui::invocation::UsageError;

    /// Uninhabited stand-in for the tokenizer.
    pub(crate) enum Detokenizer {}

    impl Detokenizer {
        pub(crate) fn required(_: &Runnable) -> Result<Self> {
            let text = "this program was built without tokenizers; give token ids with --tokens";
            Err(UsageError(text.to_owned()).into())
        }

        pub(crate) fn optional(_: &Runnable) -> Option<Self> {
            None
        }

        pub(crate) fn encode(&self, _: &str) -> Result<Vec<u32>> {
            match *self {}
        }

        pub(crate) fn text_of(&self, _: u32) -> Result<String> {
            match *self {}
        }

        pub(crate) fn stops(&self) -> Vec<u32> {
            match *self {}
        }

        pub(crate) fn stream(&self, _: &[u32]) -> Result<TokenStream<'_>> {
            match *self {}
        }
    }

    /// Uninhabited stand-in for the decoding stream.
    pub(crate) struct TokenStream<'w>(Infallible, PhantomData<&'w ()>);

    impl TokenStream<'_> {
        pub(crate) fn push(&mut self, _: u32) -> Result<String> {
            match self.0 {}
        }

        pub(crate) fn finish(self) -> Result<String> {
            match self.0 {}
        }
    }
}
