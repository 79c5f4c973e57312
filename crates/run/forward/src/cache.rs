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
use crate::number::Real;
use crate::states::{StateSizes, States};
use crate::{Problem, Result};

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
    /// Layers with attention.
    pub(crate) layers: usize,
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) states: Option<StateSizes>,
}

#[derive(Clone, Debug)]
pub(crate) struct CachedTokens<T> {
    sizes: CacheSizes,
    len: usize,
    /// Heads of shape [layers, batch, heads].
    heads: Vec<Head<T>>,
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
        let count = checked_product(&[sizes.layers, sizes.batch, sizes.heads])?;
        let mut heads: Vec<Head<T>> = Vec::new();
        heads
            .try_reserve_exact(count)
            .map_err(|_| Problem::Memory { nbytes: nbytes_of::<Head<T>>(count) })?;
        heads.resize_with(count, Head::default);
        let states = States::new(sizes.states, sizes.batch)?;
        Ok(Self { sizes, len: 0, heads, rotated: Vec::new(), states })
    }

    /// Creates a cache from f32 tensors of keys and values, and of states if the model has them, in the shapes of the ports.
    ///
    /// # Errors
    /// When a tensor has another shape or dtype, cannot be read, or does not fit in memory.
    pub(crate) fn from_tensors(sizes: CacheSizes, past: &[Tensor]) -> Result<Self> {
        let [key, value, states @ ..] = past else { return Err(Problem::CacheMismatch.into()) };
        let len = key.shape().get(2).copied().unwrap_or(0);
        let CacheSizes { layers, batch, heads, head_dim, .. } = sizes;
        let expected = [layers as u64, batch as u64, len, heads as u64, head_dim as u64];
        if [key, value].iter().any(|it| it.shape() != expected || it.dtype() != Dtype::Float32) {
            let found = |it: &Tensor| (it.dtype(), it.shape().to_vec());
            return Err(Problem::PastShape {
                key: found(key),
                value: found(value),
                layers,
                batch,
                heads,
                head_dim,
            }
            .into());
        }
        let len = usize::try_from(len).map_err(|_| Problem::Memory { nbytes: u64::MAX })?;
        let mut tokens = Self::new(sizes)?;
        tokens.reserve(len)?;
        let (key, value) = (gather_bytes(key)?, gather_bytes(value)?);
        let (key, value) = (f32_rows::<T>(&key, head_dim), f32_rows::<T>(&value, head_dim));
        for ((at, key), value) in sizes.rows(len).zip(key).zip(value) {
            if let Some(head) = tokens.heads.get_mut(at.head) {
                head.set_token(at.token, &key, &value);
            }
        }
        match (sizes.states, states) {
            (None, []) => {}
            (Some(sizes), [conv, state]) => tokens.states.read(sizes, batch, conv, state)?,
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
        let block = checked_product(&[BLOCK, self.sizes.head_dim])?;
        let blocks = len.div_ceil(BLOCK);
        // The total size is checked first, so that an absurd number fails before anything is allocated.
        checked_product(&[self.heads.len(), blocks, block, 2, size_of::<T>()])?;
        for head in &mut self.heads {
            while head.blocks.len() < blocks {
                head.blocks.push(CacheBlock {
                    keys: zeros(block)?,
                    values: zeros(block)?,
                    rotated: Vec::new(),
                });
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
            (DecoderPort::PresentKey, self.tensor(KeysOrValues::Keys)?),
            (DecoderPort::PresentValue, self.tensor(KeysOrValues::Values)?),
        ];
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

    pub(crate) fn layer(&self, layer: usize) -> &[Head<T>] {
        let count = self.sizes.batch * self.sizes.heads;
        self.heads.get(layer * count..(layer + 1) * count).unwrap_or_default()
    }

    /// Returns the heads of a layer, [batch, heads], for writing.
    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut [Head<T>] {
        let count = self.sizes.batch * self.sizes.heads;
        self.heads.get_mut(layer * count..(layer + 1) * count).unwrap_or_default()
    }

    fn tensor(&self, kind: KeysOrValues) -> Result<Tensor> {
        let CacheSizes { layers, batch, heads, head_dim, .. } = self.sizes;
        let len = checked_product(&[layers, batch, self.len, heads, head_dim, size_of::<f32>()])?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Problem::Memory { nbytes: len as u64 })?;
        for at in self.sizes.rows(self.len) {
            let Some(head) = self.heads.get(at.head) else { continue };
            head.for_each_element(kind, at.token, head_dim, |number| {
                bytes.extend(number.to_f32().to_le_bytes());
            });
        }
        let shape = [layers, batch, self.len, heads, head_dim].map(|size| size as u64).to_vec();
        let stride = contiguous_strides(&shape);
        Ok(Tensor::new(Dtype::Float32, shape, stride, 0, Storage::owned(bytes))?)
    }
}

/// Position of a row of `head_dim` numbers in the ports' tensors.
struct CacheRow {
    /// Index of the head among all heads of the cache.
    head: usize,
    token: usize,
}

impl CacheSizes {
    /// Iterates over all rows of a tensor of `len` tokens, in C order.
    fn rows(self, len: usize) -> impl Iterator<Item = CacheRow> {
        let of_token = move |sequence: usize, token| {
            (0..self.heads).map(move |head| CacheRow { head: sequence * self.heads + head, token })
        };
        (0..self.layers * self.batch)
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
