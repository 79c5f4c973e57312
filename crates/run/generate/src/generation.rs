//! Generation loop that requests logits and chooses tokens.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::{Error, Sampler, TokenChoice};

/// Options of generation: its length, the choice of tokens, and stop tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of tokens.
    pub max_tokens: usize,
    /// Method of choosing each token.
    pub choice: TokenChoice,
    /// Stop tokens, which end the text and are not part of it.
    pub stops: Vec<u32>,
}

/// Reason why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A stop token was chosen.
    StopToken(u32),
    /// The maximum number of tokens was reached.
    MaxTokens,
    /// The callback ended the generation.
    Caller,
}

/// Generated tokens, with the reason of the end and timings.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedTokens {
    /// Tokens after the prompt, without the stop token.
    pub tokens: Vec<u32>,
    pub stop_reason: StopReason,
    /// Duration of the prefill: the model call for the prompt.
    pub prompt_time: Duration,
    /// Duration of the generation after the prefill.
    pub time: Duration,
    /// Number of model calls after the prefill.
    pub steps: usize,
}

/// Model as a function from the tokens that it has not yet processed to the logits of the next token.
pub type NextLogits<'m, E> = dyn FnMut(&[u32]) -> Result<Vec<f32>, E> + 'm;

/// Generates tokens after `prompt`. `each` receives each token as soon as it is chosen, and can end the generation. The
/// model is not called if [`max_tokens`](GenerateOptions::max_tokens) is 0.
///
/// # Errors
/// Returns the errors of `model` and `each`, and an error if the options are out of range or a logit is NaN.
pub fn generate<E: From<Error>>(
    prompt: &[u32],
    options: &GenerateOptions,
    model: &mut NextLogits<'_, E>,
    each: &mut dyn FnMut(u32) -> Result<ControlFlow<()>, E>,
) -> Result<GeneratedTokens, E> {
    let mut sampler = Sampler::new(options.choice)?;
    if options.max_tokens == 0 {
        let (prompt_time, time) = (Duration::ZERO, Duration::ZERO);
        return Ok(GeneratedTokens {
            tokens: Vec::new(),
            stop_reason: StopReason::MaxTokens,
            prompt_time,
            time,
            steps: 0,
        });
    }
    let start = Instant::now();
    let mut logits = model(prompt)?;
    let prompt_time = start.elapsed();
    let after = Instant::now();
    let mut tokens = Vec::new();
    let mut steps = 0_usize;
    let ended = loop {
        if tokens.len() >= options.max_tokens {
            break StopReason::MaxTokens;
        }
        let token = sampler.next(&logits)?;
        if options.stops.contains(&token) {
            break StopReason::StopToken(token);
        }
        tokens.push(token);
        if each(token)?.is_break() {
            break StopReason::Caller;
        }
        // No token follows the last one, so its logits are not computed.
        if tokens.len() < options.max_tokens {
            logits = model(&[token])?;
            steps += 1;
        }
    };
    Ok(GeneratedTokens { tokens, stop_reason: ended, prompt_time, time: after.elapsed(), steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a model whose next token is the sum of all tokens that it has processed, modulo 10.
    fn sums() -> impl FnMut(&[u32]) -> Result<Vec<f32>, Error> {
        let mut sum = 0;
        move |tokens| {
            sum = tokens.iter().fold(sum, |sum: u32, token| sum.wrapping_add(*token) % 10);
            Ok((0..10).map(|id| f32::from(u8::from(id == sum))).collect())
        }
    }

    fn generated(max_tokens: usize, stops: Vec<u32>, enough: usize) -> GeneratedTokens {
        let options = GenerateOptions { max_tokens, choice: TokenChoice::Greedy, stops };
        let mut count = 0_usize;
        let mut each = |_| {
            count += 1;
            Ok(if count == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        generate(&[1, 2], &options, &mut sums(), &mut each).expect("numbers")
    }

    #[test]
    fn each_token_is_seen_once() {
        let done = generated(5, vec![], 0);
        assert_eq!(
            (done.tokens, done.stop_reason, done.steps),
            (vec![3, 6, 2, 4, 8], StopReason::MaxTokens, 4)
        );
    }

    #[test]
    fn a_stop_is_not_part_of_the_text() {
        let done = generated(5, vec![9, 4], 0);
        assert_eq!((done.tokens, done.stop_reason), (vec![3, 6, 2], StopReason::StopToken(4)));
    }

    #[test]
    fn the_caller_can_end_it() {
        let done = generated(5, vec![], 2);
        assert_eq!((done.tokens, done.stop_reason, done.steps), (vec![3, 6], StopReason::Caller, 1));
        let done = generated(0, vec![], 0);
        assert_eq!((done.tokens, done.stop_reason), (vec![], StopReason::MaxTokens));
    }
}
