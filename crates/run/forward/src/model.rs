//! Decoder model that computes logits from tokens.
//!
//! Facts: `forward` of the TorchScript text.

use byte_source::Observer;
use decoder::interface::PortSizes;
use decoder::{Assignment, Decoder};
use tensor::{Dtype, Tensor, Tensors};

use crate::attention::Queries;
use crate::block::{BatchPart, LayerState};
use crate::cache::{BLOCK, CacheSizes, CachedTokens, KvCache, TypedCache};
use crate::dims::DecoderDims;
use crate::kernel::{self, Pool};
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::mixed_heads::{HeadSizes, KeySizes};
use crate::number::Real;
use crate::pass::{ForwardPass, LogitPositions, LogitsBuffer, TokenChunk};
use crate::positions::Frequencies;
use crate::sequence_part::SequencePart;
use crate::sharing::share_rows;
use crate::vector::Scale;
use crate::weights::{Weights, assigned_nbytes};
use crate::{Error, Problem, Result};

/// Options for running a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardOptions {
    /// Number of threads; `None` for as many as the machine runs at once.
    pub threads: Option<usize>,
}

/// Decoder over weights that stay in the file they are mapped from.
///
/// Several threads can use a model at once, each with its own [`KvCache`]; they share its thread pool.
#[derive(Debug)]
pub struct ForwardModel {
    pub(crate) dims: DecoderDims,
    pub(crate) pool: Pool,
    /// The same threads, for steps of several sequences.
    pub(crate) step_pool: Pool,
    weights_nbytes: u64,
    port_sizes: PortSizes,
    pub(crate) network: Network,
}

#[derive(Debug)]
pub(crate) enum Network {
    F32(TypedNetwork<f32>),
    F64(TypedNetwork<f64>),
}

#[derive(Debug)]
pub(crate) struct TypedNetwork<T> {
    pub(crate) weights: Weights<T>,
    frequencies: Vec<Frequencies<T>>,
    /// Factors of the embeddings and of the logits, and the soft cap of the logits.
    embedding_factor: T,
    logits_factor: T,
    logits_soft_cap: Option<T>,
}

/// Largest number of rows that go through the layers at once. More rows would not make products faster, only their
/// results larger.
const ROWS_AT_ONCE: usize = 512;

impl ForwardModel {
    /// Creates the model of `decoder` whose weights are the tensors that `assignment` names. It computes in f64 if the
    /// embeddings are f64, else in f32.
    ///
    /// # Errors
    /// When a weight is missing, has another shape than the decoder's or an unsupported dtype, or cannot be read, or
    /// when the threads cannot be started.
    pub fn new(
        decoder: &Decoder,
        tensors: &Tensors,
        assignment: &Assignment,
        options: &ForwardOptions,
    ) -> Result<Self> {
        let dims = DecoderDims::new(decoder)?;
        let embedding = assignment.weights.iter().find(|it| it.weight == decoder::Weight::Embedding);
        let is_f64 = embedding
            .and_then(|assigned| assigned.tensor(tensors))
            .is_some_and(|tensor| tensor.dtype() == Dtype::Float64);
        let network = if is_f64 {
            Network::F64(TypedNetwork::new(decoder, dims, tensors, assignment)?)
        } else {
            Network::F32(TypedNetwork::new(decoder, dims, tensors, assignment)?)
        };
        let weights_nbytes = assigned_nbytes(tensors, assignment);
        let pool = Pool::new(options.threads)?;
        let port_sizes = PortSizes::from(decoder);
        Ok(Self { dims, step_pool: pool.rows_alike(), pool, weights_nbytes, port_sizes, network })
    }

    /// Returns the vocabulary size, the number of tokens that the model knows.
    pub fn vocab(&self) -> usize {
        self.dims.vocab
    }

    /// Returns the number of layers.
    pub fn n_layers(&self) -> usize {
        self.dims.n_layers
    }

    /// Returns the number of key-value heads, in layers without a window if these have other ones.
    pub fn n_kv_heads(&self) -> usize {
        self.dims.far.heads
    }

    /// Returns the size of an attention head, in layers without a window if these have other ones.
    pub fn head_dim(&self) -> usize {
        self.dims.far.head_dim
    }

    /// Returns the sizes of the inputs and outputs.
    pub fn port_sizes(&self) -> PortSizes {
        self.port_sizes
    }

    /// Returns the number of threads that share the work.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Returns the size of the weights in bytes. Each pass reads them once; of the embeddings it reads only the rows of
    /// its tokens, and of the experts only those that the router chooses.
    pub fn weights_nbytes(&self) -> u64 {
        self.weights_nbytes
    }

    /// Returns the name of the matrix kernel that this CPU runs.
    pub fn kernel(&self) -> &'static str {
        kernel::name()
    }

    /// Returns the size in bytes of a cache of one sequence with this many tokens.
    pub fn cache_nbytes(&self, tokens: usize) -> usize {
        let DecoderDims { far, near, states, .. } = self.dims;
        let (size, depend_on_length) = match &self.network {
            Network::F32(net) => {
                (size_of::<f32>(), net.frequencies.iter().any(Frequencies::depend_on_length))
            }
            Network::F64(net) => {
                (size_of::<f64>(), net.frequencies.iter().any(Frequencies::depend_on_length))
            }
        };
        // Keys, values, and keys as the last call rotated them.
        let copies = if depend_on_length { 3 } else { 2 };
        let tokens = tokens.div_ceil(BLOCK).saturating_mul(BLOCK);
        let of_kind = |kind: KeySizes| {
            let numbers = [kind.layers, kind.heads, kind.head_dim, size, copies].into_iter();
            numbers.fold(tokens, usize::saturating_mul)
        };
        let of_states = states.map_or(0, |states| states.nbytes(size));
        let all = [Some(far), near].into_iter().flatten().map(of_kind);
        all.fold(of_states, usize::saturating_add)
    }

    /// Creates an empty cache for `batch` sequences.
    ///
    /// # Errors
    /// When the cache cannot be allocated.
    pub fn cache(&self, batch: usize) -> Result<KvCache> {
        let sizes = self.sizes(batch);
        Ok(KvCache(match &self.network {
            Network::F32(_) => TypedCache::F32(CachedTokens::new(sizes)?),
            Network::F64(_) => TypedCache::F64(CachedTokens::new(sizes)?),
        }))
    }

    /// Creates a cache of `batch` sequences from f32 tensors of keys and values, each of shape [layers, batch, tokens,
    /// key-value heads, `head_dim`], and of states if the model has them, as [`KvCache::tensors`] returns them.
    ///
    /// # Errors
    /// When a tensor has another shape or dtype, cannot be read, or does not fit in memory.
    pub fn cache_from_tensors(&self, batch: usize, past: &[Tensor]) -> Result<KvCache> {
        let sizes = self.sizes(batch);
        Ok(KvCache(match &self.network {
            Network::F32(_) => TypedCache::F32(CachedTokens::from_tensors(sizes, past)?),
            Network::F64(_) => TypedCache::F64(CachedTokens::from_tensors(sizes, past)?),
        }))
    }

    pub(crate) fn sizes(&self, batch: usize) -> CacheSizes {
        let DecoderDims { far, near, states, .. } = self.dims;
        CacheSizes { batch, far, near, states }
    }

    /// Computes the logits of `tokens` [batch, seq], which follow the tokens in `cache` and are added to it. Returns
    /// [batch, seq or 1, vocab] in C order. If the call fails or is stopped, the cache keeps only its earlier tokens.
    ///
    /// # Errors
    /// When there are no tokens or no whole rows of them, an id is not below [`vocab`](Self::vocab), the cache is of another
    /// model or batch, a result does not fit in memory, or `observer` stops the work.
    pub fn forward(
        &self,
        tokens: &[i64],
        batch: usize,
        cache: &mut KvCache,
        rows: LogitPositions,
        observer: &dyn Observer,
    ) -> Result<Vec<f32>> {
        let mut pass = self.start(tokens, batch, rows, ROWS_AT_ONCE)?;
        let before = cache.len();
        // A call of one piece changes the states only when it succeeds.
        let states = (pass.at_once < pass.seq).then(|| cache.states());
        let result = loop {
            match self.advance(&mut pass, cache, observer) {
                Ok(true) => {}
                Ok(false) => break Ok(pass.into_logits()),
                Err(error) => break Err(error),
            }
        };
        if result.is_err() {
            cache.restore(before, states);
        }
        result
    }

    /// Starts to compute the logits of `tokens` [batch, seq] in pieces of about `rows_at_once` rows, so that a caller can do
    /// other work between them. Nothing is computed yet.
    ///
    /// # Errors
    /// When there are no tokens or no whole rows of them, or an id is not below [`vocab`](Self::vocab).
    pub fn start(
        &self,
        tokens: &[i64],
        batch: usize,
        rows: LogitPositions,
        rows_at_once: usize,
    ) -> Result<ForwardPass> {
        let ids = self.embedding_ids(tokens, batch)?;
        let seq = ids.len() / batch;
        let at_once = (rows_at_once.min(ROWS_AT_ONCE) / batch).clamp(1, seq);
        let returned = match rows {
            LogitPositions::All => seq,
            LogitPositions::Last => 1,
            LogitPositions::Pieces => at_once,
        };
        let logits = LogitsBuffer { returned, of_piece: 0, out: Vec::new() };
        Ok(ForwardPass { ids, batch, seq, rows, at_once, first: 0, total: None, logits })
    }

    /// Computes the next piece of a pass, and adds its tokens to `cache`, which must be the same in all calls. Returns true
    /// if there are more pieces.
    ///
    /// # Errors
    /// When the cache is of another model or batch, a result does not fit in memory, or `observer` stops the work. The pass
    /// and the cache cannot be used after an error.
    pub fn advance(
        &self,
        pass: &mut ForwardPass,
        cache: &mut KvCache,
        observer: &dyn Observer,
    ) -> Result<bool> {
        match (&self.network, &mut cache.0) {
            (Network::F32(net), TypedCache::F32(cache)) => self.run_piece(net, pass, cache, observer),
            (Network::F64(net), TypedCache::F64(cache)) => self.run_piece(net, pass, cache, observer),
            _ => Err(Problem::CacheMismatch.into()),
        }
    }

    pub(crate) fn embedding_ids(&self, tokens: &[i64], batch: usize) -> Result<Vec<usize>> {
        if tokens.is_empty() || tokens.len().checked_rem(batch) != Some(0) {
            return Err(Problem::Tokens { found: tokens.len(), batch }.into());
        }
        let id = |token: &i64| usize::try_from(*token).ok().filter(|id| *id < self.dims.vocab);
        Ok(tokens.iter().map(id).collect::<Option<_>>().ok_or_else(|| Problem::TokenIds {
            low: tokens.iter().copied().min().unwrap_or(0),
            high: tokens.iter().copied().max().unwrap_or(0),
            vocab: self.dims.vocab,
        })?)
    }

    /// Sends the next [`ForwardPass::at_once`] tokens of each sequence through the layers.
    fn run_piece<T: Real>(
        &self,
        net: &TypedNetwork<T>,
        pass: &mut ForwardPass,
        cache: &mut CachedTokens<T>,
        observer: &dyn Observer,
    ) -> Result<bool> {
        let ForwardPass { batch, seq, first, .. } = *pass;
        if cache.sizes() != self.sizes(batch) {
            return Err(Problem::CacheMismatch.into());
        }
        let total = if let Some(total) = pass.total {
            total
        } else {
            let total = cache.len().checked_add(seq).ok_or(Problem::Memory { nbytes: u64::MAX })?;
            net.weights.positions.as_ref().map_or(Ok(()), |positions| positions.check(total))?;
            pass.logits.out = zeros(checked_product(&[batch, pass.logits.returned, self.dims.vocab])?)?;
            cache.reserve(total)?;
            *pass.total.insert(total)
        };
        let count = pass.at_once.min(seq - first);
        if count == 0 {
            return Ok(false);
        }
        let is_last = first + count == seq;
        let (wanted, row) = match pass.rows {
            LogitPositions::All => (count, first),
            LogitPositions::Last => (usize::from(is_last), 0),
            LogitPositions::Pieces => (count, 0),
        };
        let chunk = TokenChunk { batch, seq, first, count, wanted, total };
        self.pool.run(|| {
            let h = self.run_layers(net, &pass.ids, &chunk, cache, observer)?;
            cache.advance(count);
            if wanted > 0 {
                self.write_logits(net, &self.pool, &h, wanted, row, &mut pass.logits)?;
            }
            Ok::<_, Error>(())
        })?;
        pass.first = first + count;
        pass.logits.of_piece = wanted * self.dims.vocab;
        Ok(!is_last)
    }

    /// Sends a chunk of the tokens through all layers. Returns the rows of its `wanted` tokens.
    fn run_layers<T: Real>(
        &self,
        net: &TypedNetwork<T>,
        ids: &[usize],
        chunk: &TokenChunk,
        cache: &mut CachedTokens<T>,
        observer: &dyn Observer,
    ) -> Result<Vec<T>> {
        let &TokenChunk { batch, seq, first, count, wanted, total } = chunk;
        let rows = ids.chunks_exact(seq).flat_map(|ids| ids.iter().skip(first).take(count));
        let rows: Vec<usize> = rows.copied().collect();
        let batch = [SequencePart { batch, count, total }];
        self.run_parts(net, &self.pool, &rows, &batch, &mut [cache], wanted, observer)
    }

    /// Sends rows of embeddings through all layers, those of each part with its own cache. The parts have the same number of tokens
    /// for each sequence. Returns the rows of the last `wanted` tokens of each sequence.
    #[expect(clippy::too_many_arguments, reason = "a pass has these parts")]
    pub(crate) fn run_parts<T: Real>(
        &self,
        net: &TypedNetwork<T>,
        pool: &Pool,
        ids: &[usize],
        sequences: &[SequencePart],
        caches: &mut [&mut CachedTokens<T>],
        wanted: usize,
        observer: &dyn Observer,
    ) -> Result<Vec<T>> {
        let DecoderDims { dim, n_heads, far, .. } = self.dims;
        let HeadSizes { kv_heads, group, head_dim } = far.of_heads(n_heads);
        let numbers = checked_product(&[ids.len(), dim])?;
        let mut h = Vec::new();
        h.try_reserve_exact(numbers)
            .map_err(|_| Problem::Memory { nbytes: crate::memory::nbytes_of::<T>(numbers) })?;
        let mut parts = Vec::with_capacity(sequences.len());
        let mut lengths = Vec::with_capacity(sequences.len());
        let all_ids = ids;
        let mut ids = ids.iter();
        for (&SequencePart { batch, count, total }, cache) in sequences.iter().zip(&mut *caches) {
            let past = cache.len();
            let queries = Queries { batch, count, kv_heads, group, head_dim, past };
            let of_length: Vec<Option<Vec<f64>>> =
                net.frequencies.iter().map(|each| each.frequencies_for_length(total)).collect();
            let angles =
                net.frequencies.iter().zip(&of_length).enumerate().map(|(rope, (each, of_length))| {
                    let rotated =
                        of_length.as_ref().map(|of_length| cache.take_rotated_count(rope, of_length));
                    let first = rotated.map_or(past, |rotated| rotated.min(past));
                    each.angles(first..past + count, of_length.as_deref())
                });
            parts.push(BatchPart { queries, angles: angles.collect() });
            lengths.push(of_length);
            for (row, id) in ids.by_ref().take(queries.rows()).enumerate() {
                let start = h.len();
                let embedding = |number| h.push(T::from_f64(number) * net.embedding_factor);
                net.weights.embedding.for_each_in_row(*id, embedding);
                if let (Some(positions), Some(row_of)) = (&net.weights.positions, h.get_mut(start..)) {
                    positions.add_to(past + row % count, row_of);
                }
            }
        }
        if let Some(norm) = &net.weights.embedding_norm {
            norm.apply(pool, dim, &mut h);
        }
        let count = sequences.first().map_or(0, |part| part.count);
        let inputs = net.weights.inputs.as_ref();
        let inputs = inputs.map(|table| table.rows(pool, all_ids, &h, count)).transpose()?;
        let mut work = LayerState::new(pool, parts, &self.dims, inputs)?;
        for (number, layer) in net.weights.layers.iter().enumerate() {
            observer.check()?;
            // The last layer computes only keys and values of tokens without logits.
            let is_last = number + 1 == net.weights.layers.len();
            layer.apply(if is_last { wanted } else { count }, &mut h, caches, &mut work)?;
        }
        for (of_length, cache) in lengths.iter().zip(caches) {
            let end = cache.len() + count;
            for (rope, of_length) in of_length.iter().enumerate() {
                if let Some(of_length) = of_length {
                    cache.set_rotated_count(rope, of_length, end);
                }
            }
        }
        Ok(h)
    }

    /// Writes the logits of the rows `h` [batch, count, dim] to `logits`; `first` is the position of the first row
    /// among the returned rows of each sequence.
    pub(crate) fn write_logits<T: Real>(
        &self,
        net: &TypedNetwork<T>,
        pool: &Pool,
        h: &[T],
        count: usize,
        first: usize,
        logits: &mut LogitsBuffer,
    ) -> Result<()> {
        let mut normed = zeros(h.len())?;
        net.weights.norm.apply_into(pool, h, &mut normed);
        let (dim, vocab) = (self.dims.dim, self.dims.vocab);
        let write = |rows: &[T], out: &mut [T]| {
            Linear::apply_all(pool, [(&net.weights.output, rows, &mut *out)]);
            if net.logits_factor != T::ONE || net.logits_soft_cap.is_some() {
                share_rows(pool, out, vocab, |_, x| {
                    T::run(Scale { x, factor: net.logits_factor, cap: net.logits_soft_cap });
                });
            }
        };
        if count == logits.returned {
            return T::into_f32(&mut logits.out, |out| write(&normed, out));
        }
        let sequences = logits.out.chunks_exact_mut(logits.returned * vocab);
        for (out, normed) in sequences.zip(normed.chunks_exact(count * dim)) {
            if let Some(out) = out.get_mut(first * vocab..(first + count) * vocab) {
                T::into_f32(out, |out| write(normed, out))?;
            }
        }
        Ok(())
    }
}

impl<T: Real> TypedNetwork<T> {
    fn new(decoder: &Decoder, dims: DecoderDims, tensors: &Tensors, assignment: &Assignment) -> Result<Self> {
        let rotates_halves = decoder.rotates_halves();
        let frequencies = |(number, rope)| Frequencies::new(rope, decoder.rotated_by(number), rotates_halves);
        let scales = &decoder.block().scales;
        Ok(Self {
            weights: Weights::new(decoder, dims, tensors, assignment)?,
            frequencies: decoder.ropes().iter().enumerate().map(frequencies).collect(),
            embedding_factor: T::from_f64(scales.embedding),
            logits_factor: T::from_f64(scales.logits),
            logits_soft_cap: scales.logits_soft_cap.map(T::from_f64),
        })
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    // A server keeps models, and sends caches to its threads.
    is_shared::<ForwardModel>();
    is_shared::<KvCache>();
};
