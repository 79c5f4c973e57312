//! Steps of several sequences: the logits of each are those of the sequence alone, bit for bit.

use forward::{ForwardModel, KvCache, LogitPositions};
use tensor::Dtype;

use crate::reference::{Random, VOCAB};
use crate::{ON, Stop, flags, largest_difference, logits, model, shapes, tokens};

/// Caches of sequences of different lengths, and the next token of each.
fn started(model: &ForwardModel, count: usize) -> (Vec<KvCache>, Vec<i64>) {
    let cache = |seed: usize| {
        let mut cache = model.cache(1).expect("a few bytes");
        model
            .forward(&tokens(1 + seed * 5 % 70, seed), 1, &mut cache, LogitPositions::Last, ON)
            .expect("known ids");
        cache
    };
    ((0..count).map(cache).collect(), tokens(count, 3))
}

fn step(model: &ForwardModel, tokens: &[i64], caches: &mut [KvCache]) -> Vec<f32> {
    model.step(tokens, &mut caches.iter_mut().collect::<Vec<_>>(), ON).expect("known ids")
}

/// Compares two steps of 33 sequences with the same steps of each sequence alone, and with a call for the whole of one of them.
fn compare(model: &ForwardModel, what: &str) {
    let (mut caches, next) = started(model, 33);
    for round in 0..2 {
        let mut alone = caches.clone();
        let together = step(model, &next, &mut caches);
        for (number, cache) in alone.iter_mut().enumerate() {
            let single = step(model, &next[number..=number], std::slice::from_mut(cache));
            assert_eq!(single, together[number * VOCAB..][..VOCAB], "{what}, {number} in round {round}");
            assert_eq!(cache.len(), caches[number].len());
        }
    }
}

#[test]
fn a_step_is_the_same_alone_and_among_others() {
    for (number, shape) in shapes().iter().enumerate() {
        for dtype in [Dtype::Float64, Dtype::Float32, Dtype::BFloat16, Dtype::Float16] {
            let model = model(&Random::new(shape, dtype, number as u64 + 1), 2);
            compare(&model, &format!("{shape:?} in {dtype}"));
        }
    }
}

#[test]
fn a_step_of_each_kind_of_block_is_the_same_too() {
    for (name, model) in flags::models() {
        compare(&model, name);
    }
}

#[test]
fn a_step_has_the_logits_of_a_call() {
    let model = model(&Random::new(&shapes()[0], Dtype::Float32, 2), 2);
    let (mut caches, next) = started(&model, 9);
    let found = step(&model, &next, &mut caches);
    for (number, found) in found.chunks(VOCAB).enumerate() {
        let mut text = tokens(1 + number * 5 % 70, number);
        text.push(next[number]);
        let expected = logits(&model, &text);
        assert!(largest_difference(found, &expected[expected.len() - VOCAB..]) < 1e-5, "{number}");
    }
}

#[test]
fn wrong_steps_are_errors_and_change_nothing() {
    let model = model(&Random::new(&shapes()[0], Dtype::Float32, 2), 2);
    let (mut caches, _) = started(&model, 2);
    let lengths: Vec<usize> = caches.iter().map(KvCache::len).collect();
    let run =
        |tokens: &[i64], caches: &mut [&mut KvCache], on| model.step(tokens, caches, on).expect_err("wrong");
    assert_eq!(run(&[], &mut [], ON).code(), "forward::Tokens");
    let mut both: Vec<&mut KvCache> = caches.iter_mut().collect();
    assert_eq!(run(&[1], &mut both, ON).code(), "forward::Tokens");
    assert_eq!(run(&[1, 2, 3, 4], &mut both, ON).code(), "forward::Tokens");
    assert_eq!(run(&[1, 40], &mut both, ON).code(), "forward::TokenIds");
    assert!(run(&[1, 2], &mut both, &Stop).is_cancelled());
    let mut pair = model.cache(2).expect("a few bytes");
    assert_eq!(run(&[1], &mut [&mut pair], ON).code(), "forward::CacheMismatch");
    assert_eq!(caches.iter().map(KvCache::len).collect::<Vec<_>>(), lengths);
}

#[test]
fn pieces_have_the_logits_of_the_whole() {
    let model = model(&Random::new(&shapes()[0], Dtype::Float32, 2), 2);
    let text = tokens(75, 1);
    let mut cache = model.cache(1).expect("a few bytes");
    let mut pass = model.start(&text, 1, LogitPositions::Pieces, 20).expect("known ids");
    let mut found = Vec::new();
    loop {
        let is_unfinished = model.advance(&mut pass, &mut cache, ON).expect("known ids");
        found.extend_from_slice(pass.piece_logits());
        if !is_unfinished {
            break;
        }
    }
    assert!(largest_difference(&found, &logits(&model, &text)) < 1e-5);
}
