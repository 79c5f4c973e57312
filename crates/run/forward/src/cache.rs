//! KV cache: the keys and values of the tokens so far.
//!
//! Each head has blocks of [`BLOCK`] tokens, so that a growing cache is never copied. Keys are transposed in their
//! block: scores of one query against 64 keys are then sums of vectors, not 64 sums over a vector's elements.
//!
//! Layers of gated `DeltaNet` have states instead.
//!
//! Facts: the ports `past_key` and `present_key` of the TorchScript module have the shape [layers, batch, tokens,
//! key-value heads, `head_dim`] in f32.

use decoder::interface::DecoderPort;
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::memory::{checked_product, gather_bytes, nbytes_of, zeros};
use crate::mixed_heads::{CachePlace, KeySizes};
use crate::number::Real;
use crate::states::{StateSizes, States};
use crate::{Error, Problem, Result};

pub(crate) const BLOCK: usize = 64;

/// Keys and values of all tokens that a [`ForwardModel`](crate::ForwardModel) has processed.
#[derive(Clone, Debug)]
pub struct KvCache(pub(crate) TypedCache);

/// Cached tokens in the number type that the model computes in.
#[derive(Clone, Debug)]
pub(crate) enum TypedCache {
    F32(CachedTokens<f32>),
    F64(CachedTokens<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSizes {
    pub(crate) batch: usize,
    /// Layers with keys and values, but for those of `near`.
    pub(crate) far: KeySizes,
    /// Layers with a window, if their heads have other sizes.
    pub(crate) near: Option<KeySizes>,
    pub(crate) states: Option<StateSizes>,
}

#[derive(Clone, Debug)]
pub(crate) struct CachedTokens<T> {
    sizes: CacheSizes,
    len: usize,
    /// Heads of both kinds of layers, each of shape [layers, batch, heads].
    heads: [Vec<Head<T>>; 2],
    /// For each rotary embedding that depends on the length of the text, the frequencies that keys were last rotated
    /// with, and the number of tokens whose keys were.
    rotated: Vec<(Vec<f64>, usize)>,
    pub(crate) states: States<T>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Head<T> {
    blocks: Vec<CacheBlock<T>>,
}

/// Keys and values of [`BLOCK`] tokens; places of tokens that are still to come are 0.
#[derive(Clone, Debug)]
pub(crate) struct CacheBlock<T> {
    /// Transposed keys `[head_dim, BLOCK]`, rotated unless the rotation depends on the length of the text.
    pub(crate) keys: Vec<T>,
    /// Values of shape `[BLOCK, head_dim]`.
    pub(crate) values: Vec<T>,
    /// Keys as the last call rotated them, if the rotation depends on the length of the text; empty otherwise.
    pub(crate) rotated: Vec<T>,
}

impl KvCache {
    /// Returns the number of tokens of each sequence.
    pub fn len(&self) -> usize {
        match &self.0 {
            TypedCache::F32(tokens) => tokens.len,
            TypedCache::F64(tokens) => tokens.len,
        }
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` tokens, after which the states were those of `states`, or are those of now.
    pub(crate) fn restore(&mut self, len: usize, states: Option<TypedStates>) {
        match (&mut self.0, states) {
            (TypedCache::F32(tokens), Some(TypedStates::F32(states))) => tokens.restore(len, Some(states)),
            (TypedCache::F64(tokens), Some(TypedStates::F64(states))) => tokens.restore(len, Some(states)),
            (TypedCache::F32(tokens), _) => tokens.restore(len, None),
            (TypedCache::F64(tokens), _) => tokens.restore(len, None),
        }
    }

    /// Returns a copy of the states.
    pub(crate) fn states(&self) -> TypedStates {
        match &self.0 {
            TypedCache::F32(tokens) => TypedStates::F32(tokens.states.clone()),
            TypedCache::F64(tokens) => TypedStates::F64(tokens.states.clone()),
        }
    }

    /// Returns the number of sequences.
    pub fn batch(&self) -> usize {
        match &self.0 {
            TypedCache::F32(tokens) => tokens.sizes.batch,
            TypedCache::F64(tokens) => tokens.sizes.batch,
        }
    }

    /// Returns the keys and the values as f32 tensors of shape [layers, batch, tokens, key-value heads, `head_dim`], and the
    /// states if the model has them, each with its port.
    ///
    /// # Errors
    /// When they do not fit in memory.
    pub fn tensors(&self) -> Result<Vec<(DecoderPort, Tensor)>> {
        match &self.0 {
            TypedCache::F32(tokens) => tokens.tensors(),
            TypedCache::F64(tokens) => tokens.tensors(),
        }
    }
}

/// States in the number type that the model computes in.
pub(crate) enum TypedStates {
    F32(States<f32>),
    F64(States<f64>),
}

#[derive(Clone, Copy)]
enum KeysOrValues {
    Keys,
    Values,
}

impl<T: Real> CachedTokens<T> {
    /// Creates a cache of `sizes.batch` sequences without tokens.
    ///
    /// # Errors
    /// When there are more heads than fit in memory.
    pub(crate) fn new(sizes: CacheSizes) -> Result<Self> {
        let empty = |of: Option<KeySizes>| {
            let mut heads: Vec<Head<T>> = Vec::new();
            let Some(of) = of else { return Ok::<_, Error>(heads) };
            let count = checked_product(&[of.layers, sizes.batch, of.heads])?;
            heads
                .try_reserve_exact(count)
                .map_err(|_| Problem::Memory { nbytes: nbytes_of::<Head<T>>(count) })?;
            heads.resize_with(count, Head::default);
            Ok(heads)
        };
        let heads = [empty(Some(sizes.far))?, empty(sizes.near)?];
        let states = States::new(sizes.states, sizes.batch)?;
        Ok(Self { sizes, len: 0, heads, rotated: Vec::new(), states })
    }

    /// Creates a cache from f32 tensors of keys and values, and of states if the model has them, in the shapes of the ports.
    ///
    /// # Errors
    /// When a tensor has another shape or dtype, cannot be read, or does not fit in memory.
    pub(crate) fn from_tensors(sizes: CacheSizes, past: &[Tensor]) -> Result<Self> {
        let [key, _, ..] = past else { return Err(Problem::CacheMismatch.into()) };
        let len = key.shape().get(2).copied().unwrap_or(0);
        let len = usize::try_from(len).map_err(|_| Problem::Memory { nbytes: u64::MAX })?;
        let kinds = [Some((sizes.far, ""))].into_iter().chain([sizes.near.map(|near| (near, "window_"))]);
        let mut states = past;
        for (of, kind) in kinds.clone().flatten() {
            let [key, value, rest @ ..] = states else { return Err(Problem::CacheMismatch.into()) };
            check_shapes(of.shape(sizes.batch, len), kind, [key, value])?;
            states = rest;
        }
        let mut tokens = Self::new(sizes)?;
        tokens.reserve(len)?;
        let pairs = past.chunks_exact(2);
        for ((kind, pair), heads) in kinds.zip(pairs).zip(&mut tokens.heads) {
            let (Some((of, _)), [key, value]) = (kind, pair) else { continue };
            let (key, value) = (gather_bytes(key)?, gather_bytes(value)?);
            let (key, value) = (f32_rows::<T>(&key, of.head_dim), f32_rows::<T>(&value, of.head_dim));
            for ((at, key), value) in of.rows(sizes.batch, len).zip(key).zip(value) {
                if let Some(head) = heads.get_mut(at.head) {
                    head.set_token(at.token, &key, &value);
                }
            }
        }
        match (sizes.states, states) {
            (None, []) => {}
            (Some(of), [conv, state]) => tokens.states.read(of, sizes.batch, conv, state)?,
            _ => return Err(Problem::CacheMismatch.into()),
        }
        tokens.len = len;
        Ok(tokens)
    }

    pub(crate) fn sizes(&self) -> CacheSizes {
        self.sizes
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes room for `len` tokens in total.
    ///
    /// # Errors
    /// When the keys and values do not fit in memory.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        let blocks = len.div_ceil(BLOCK);
        let kinds = [Some(self.sizes.far), self.sizes.near];
        // The total size is checked first, so that an absurd number fails before anything is allocated.
        for (of, heads) in kinds.iter().flatten().zip(&self.heads) {
            checked_product(&[heads.len(), blocks, BLOCK, of.head_dim, 2, size_of::<T>()])?;
        }
        for (of, heads) in kinds.iter().flatten().zip(&mut self.heads) {
            let block = checked_product(&[BLOCK, of.head_dim])?;
            for head in heads {
                while head.blocks.len() < blocks {
                    head.blocks.push(CacheBlock {
                        keys: zeros(block)?,
                        values: zeros(block)?,
                        rotated: Vec::new(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Counts `count` more tokens, which were written after the last one.
    pub(crate) fn advance(&mut self, count: usize) {
        self.len += count;
        self.states.advance();
    }

    fn restore(&mut self, len: usize, states: Option<States<T>>) {
        self.len = self.len.min(len);
        if let Some(states) = states {
            self.states = states;
        }
    }

    fn tensors(&self) -> Result<Vec<(DecoderPort, Tensor)>> {
        let mut all = vec![
            (DecoderPort::PresentKey, self.tensor(self.sizes.far, 0, KeysOrValues::Keys)?),
            (DecoderPort::PresentValue, self.tensor(self.sizes.far, 0, KeysOrValues::Values)?),
        ];
        if let Some(near) = self.sizes.near {
            all.extend([
                (DecoderPort::PresentWindowKey, self.tensor(near, 1, KeysOrValues::Keys)?),
                (DecoderPort::PresentWindowValue, self.tensor(near, 1, KeysOrValues::Values)?),
            ]);
        }
        if let Some(sizes) = self.sizes.states {
            let [conv, state] = self.states.tensors(sizes, self.sizes.batch)?;
            all.extend([(DecoderPort::PresentConv, conv), (DecoderPort::PresentState, state)]);
        }
        Ok(all)
    }

    /// Takes the number of tokens whose keys are already rotated by these frequencies of rotary embedding `rope`. The number
    /// is 0 from then on, until [`set_rotated_count`](Self::set_rotated_count) sets it for all layers.
    pub(crate) fn take_rotated_count(&mut self, rope: usize, frequencies: &[f64]) -> usize {
        let Some((last, count)) = self.rotated.get_mut(rope) else { return 0 };
        let count = std::mem::take(count);
        if last == frequencies { count.min(self.len) } else { 0 }
    }

    /// Records that the keys of this many tokens are rotated by these frequencies in all layers.
    pub(crate) fn set_rotated_count(&mut self, rope: usize, frequencies: &[f64], count: usize) {
        if self.rotated.len() <= rope {
            self.rotated.resize(rope + 1, (Vec::new(), 0));
        }
        if let Some(rotated) = self.rotated.get_mut(rope) {
            *rotated = (frequencies.to_vec(), count);
        }
    }

    /// Returns the kind of a layer's heads, and their range among those of this kind.
    fn range(&self, place: CachePlace) -> (usize, std::ops::Range<usize>) {
        let near = self.sizes.near.filter(|_| place.is_near);
        let count = self.sizes.batch * near.unwrap_or(self.sizes.far).heads;
        (usize::from(near.is_some()), place.number * count..(place.number + 1) * count)
    }

    pub(crate) fn layer(&self, place: CachePlace) -> &[Head<T>] {
        let (kind, range) = self.range(place);
        self.heads.get(kind).and_then(|heads| heads.get(range)).unwrap_or_default()
    }

    /// Returns the heads of a layer, [batch, heads], for writing.
    pub(crate) fn layer_mut(&mut self, place: CachePlace) -> &mut [Head<T>] {
        let (kind, range) = self.range(place);
        self.heads.get_mut(kind).and_then(|heads| heads.get_mut(range)).unwrap_or_default()
    }

    fn tensor(&self, of: KeySizes, kind: usize, part: KeysOrValues) -> Result<Tensor> {
        let shape = of.shape(self.sizes.batch, self.len);
        let len = checked_product(&[shape.as_slice(), &[size_of::<f32>()]].concat())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Problem::Memory { nbytes: len as u64 })?;
        for at in of.rows(self.sizes.batch, self.len) {
            let Some(head) = self.heads.get(kind).and_then(|heads| heads.get(at.head)) else { continue };
            head.for_each_element(part, at.token, of.head_dim, |number| {
                bytes.extend(number.to_f32().to_le_bytes());
            });
        }
        let shape = shape.map(|size| size as u64).to_vec();
        let stride = contiguous_strides(&shape);
        Ok(Tensor::new(Dtype::Float32, shape, stride, 0, Storage::owned(bytes))?)
    }
}

/// Checks keys and values that a caller passes.
fn check_shapes(expected: [usize; 5], kind: &'static str, found: [&Tensor; 2]) -> Result<()> {
    let shape = expected.map(|size| size as u64);
    if found.iter().all(|it| it.shape() == shape && it.dtype() == Dtype::Float32) {
        return Ok(());
    }
    let [layers, batch, _, heads, head_dim] = expected;
    let [key, value] = found.map(|it| (it.dtype(), it.shape().to_vec()));
    Err(Problem::PastShape { kind, key, value, layers, batch, heads, head_dim }.into())
}

/// Position of a row of `head_dim` numbers in the ports' tensors.
struct CacheRow {
    /// Index of the head among all heads of the cache.
    head: usize,
    token: usize,
}

impl KeySizes {
    /// Iterates over all rows of a tensor of `len` tokens, in C order.
    fn rows(self, batch: usize, len: usize) -> impl Iterator<Item = CacheRow> {
        let of_token = move |sequence: usize, token| {
            (0..self.heads).map(move |head| CacheRow { head: sequence * self.heads + head, token })
        };
        (0..self.layers * batch)
            .flat_map(move |sequence| (0..len).flat_map(move |token| of_token(sequence, token)))
    }
}

impl<T: Real> Head<T> {
    pub(crate) fn blocks(&self) -> &[CacheBlock<T>] {
        &self.blocks
    }

    /// Makes room for rotated keys in all blocks.
    ///
    /// # Errors
    /// When the keys and values do not fit in memory.
    pub(crate) fn reserve_rotated(&mut self) -> Result<()> {
        for block in &mut self.blocks {
            if block.rotated.is_empty() {
                block.rotated = zeros(block.keys.len())?;
            }
        }
        Ok(())
    }

    /// Iterates over the keys, in blocks of [`BLOCK`] tokens, each with the buffer for the rotated keys.
    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = (&[T], &mut [T])> {
        self.blocks.iter_mut().map(|block| (&block.keys[..], &mut block.rotated[..]))
    }

    /// Writes the key and the value of a token, for which there is room.
    pub(crate) fn set_token(&mut self, token: usize, key: &[T], value: &[T]) {
        let column = token % BLOCK;
        let Some(block) = self.blocks.get_mut(token / BLOCK) else { return };
        for (place, number) in block.keys.iter_mut().skip(column).step_by(BLOCK).zip(key) {
            *place = *number;
        }
        let start = column * value.len();
        if let Some(row) = block.values.get_mut(start..start + value.len()) {
            row.copy_from_slice(value);
        }
    }

    fn for_each_element(&self, kind: KeysOrValues, token: usize, head_dim: usize, take: impl FnMut(&T)) {
        let column = token % BLOCK;
        let Some(block) = self.blocks.get(token / BLOCK) else { return };
        match kind {
            KeysOrValues::Keys => block.keys.iter().skip(column).step_by(BLOCK).for_each(take),
            KeysOrValues::Values => {
                block.values.iter().skip(column * head_dim).take(head_dim).for_each(take);
            }
        }
    }
}

/// Iterates over the rows of `head_dim` f32 numbers in `bytes`.
fn f32_rows<T: Real>(bytes: &[u8], head_dim: usize) -> impl Iterator<Item = Vec<T>> {
    let numbers = bytes.as_chunks::<4>().0;
    let number = |bytes: &[u8; 4]| T::from_f32(f32::from_le_bytes(*bytes));
    numbers.chunks_exact(head_dim).map(move |row| row.iter().map(number).collect())
}
