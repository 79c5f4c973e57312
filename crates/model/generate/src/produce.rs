//! The loop that asks for logits and chooses tokens.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::{Choice, Error, Sampler};

/// How tokens are generated, and when that ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The most tokens.
    pub max_tokens: usize,
    /// How each is chosen.
    pub choice: Choice,
    /// The tokens that end the text. They are not part of it.
    pub stops: Vec<u32>,
}

/// Why generating ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This token was chosen, which ends the text.
    Stop(u32),
    /// As many tokens were generated as were asked for.
    Enough,
    /// The caller ended it.
    Caller,
}

/// What was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The tokens after the prompt, without the one that ended the text.
    pub tokens: Vec<u32>,
    /// Why generating ended.
    pub ended: Ended,
    /// How long the model took for the prompt.
    pub prompt_time: Duration,
    /// How long everything after it took.
    pub time: Duration,
    /// How often the model was called after the prompt.
    pub steps: usize,
}

/// Takes the tokens that a model has not seen yet, and returns the logits of the one that follows.
pub type NextLogits<'m, E> = dyn FnMut(&[u32]) -> Result<Vec<f32>, E> + 'm;

/// Generates tokens after `prompt`. `each` receives each token as soon as it is chosen, and can end the work. The model is not
/// called if [`max_tokens`](Options::max_tokens) is 0.
///
/// # Errors
/// Those of `model` and `each`, and when the options are out of range or a logit is not a number.
pub fn generate<E: From<Error>>(
    prompt: &[u32],
    options: &Options,
    model: &mut NextLogits<'_, E>,
    each: &mut dyn FnMut(u32) -> Result<ControlFlow<()>, E>,
) -> Result<Generated, E> {
    let mut sampler = Sampler::new(options.choice)?;
    if options.max_tokens == 0 {
        let (prompt_time, time) = (Duration::ZERO, Duration::ZERO);
        return Ok(Generated { tokens: Vec::new(), ended: Ended::Enough, prompt_time, time, steps: 0 });
    }
    let start = Instant::now();
    let mut logits = model(prompt)?;
    let prompt_time = start.elapsed();
    let after = Instant::now();
    let mut tokens = Vec::new();
    let mut steps = 0_usize;
    let ended = loop {
        if tokens.len() >= options.max_tokens {
            break Ended::Enough;
        }
        let token = sampler.next(&logits)?;
        if options.stops.contains(&token) {
            break Ended::Stop(token);
        }
        tokens.push(token);
        if each(token)?.is_break() {
            break Ended::Caller;
        }
        // The logits after the last token are not needed.
        if tokens.len() < options.max_tokens {
            logits = model(&[token])?;
            steps += 1;
        }
    };
    Ok(Generated { tokens, ended, prompt_time, time: after.elapsed(), steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model whose next token is the sum of all that it has seen, modulo 10.
    fn sums() -> impl FnMut(&[u32]) -> Result<Vec<f32>, Error> {
        let mut sum = 0;
        move |tokens| {
            sum = tokens.iter().fold(sum, |sum: u32, token| sum.wrapping_add(*token) % 10);
            Ok((0..10).map(|id| f32::from(u8::from(id == sum))).collect())
        }
    }

    fn generated(max_tokens: usize, stops: Vec<u32>, enough: usize) -> Generated {
        let options = Options { max_tokens, choice: Choice::Greedy, stops };
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
        assert_eq!((done.tokens, done.ended, done.steps), (vec![3, 6, 2, 4, 8], Ended::Enough, 4));
    }

    #[test]
    fn a_stop_is_not_part_of_the_text() {
        let done = generated(5, vec![9, 4], 0);
        assert_eq!((done.tokens, done.ended), (vec![3, 6, 2], Ended::Stop(4)));
    }

    #[test]
    fn the_caller_can_end_it() {
        let done = generated(5, vec![], 2);
        assert_eq!((done.tokens, done.ended, done.steps), (vec![3, 6], Ended::Caller, 1));
        let done = generated(0, vec![], 0);
        assert_eq!((done.tokens, done.ended), (vec![], Ended::Enough));
    }
}
